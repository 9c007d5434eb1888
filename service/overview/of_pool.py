"""Whether the DRAM pool is too small."""

from collections.abc import Iterator

from service.overview.finding import OVER, Finding, Level
from service.overview.situation import Shelf, Situation
from service.overview.words import capital, many, percent, size

_FEW, _SHARE_TO_LOOK, _SHARE_BAD = 10, 0.01, 0.1
_ALMOST_FULL = 0.95
_FEW_SNAPSHOTS = 20


def is_it_too_small(facts: Situation) -> tuple[str, Level]:
    """The third question's answer."""
    shelves = facts.of_tier("dram")
    if not _serves(facts):
        return "It does not serve at present, so nobody can tell.", "bad"
    filled = "; ".join(map(_use, shelves))
    reasons = [f"{shelf.name} {why}" for shelf in shelves if (why := _why_small(facts, shelf))]
    if reasons:
        return f"Yes: {'; '.join(reasons)}. {capital(filled)}.", "good"
    if not any(shelf.state.records or shelf.state.used_bytes for shelf in shelves) and not facts.grew(
        "stores.snapshot.stored"
    ):
        return f"No snapshot was stored yet; {filled}.", "none"
    if any(_matters(shelf, shelf.crowded_out) or _matters(shelf, shelf.refused) for shelf in shelves):
        return f"No: it was in {facts.window}, and there is room now. {capital(filled)}.", "good"
    if any(_matters(shelf, shelf.evicted) for shelf in shelves):
        return f"No: some were lost in {facts.window}, but not for want of room. {capital(filled)}.", "good"
    return f"No: next to nothing was lost or refused in {facts.window}. {capital(filled)}.", "good"


def findings(facts: Situation) -> Iterator[Finding]:
    """What the pool, or a tenant's part of it, is too small for; nothing of one that cannot be asked."""
    for shelf in facts.of_tier("dram") if _serves(facts) else []:
        if not _holds_none(shelf):
            yield from _of_refusals(facts, shelf)
            yield from _of_losses(facts, shelf)
        yield from _of_size(facts, shelf)


def has_room(facts: Situation) -> bool:
    """Whether snapshots that are stored now stay."""
    return not any(shelf.is_full for shelf in facts.of_tier("dram"))


def more_room(facts: Situation) -> str:
    """How those that are full get more room."""
    full = [shelf for shelf in facts.of_tier("dram") if shelf.is_full] or facts.of_tier("dram")[:1]
    return f"Raise {' and '.join(_setting(facts, shelf) for shelf in full)}."


def _of_refusals(facts: Situation, shelf: Shelf) -> Iterator[Finding]:
    if not _matters(shelf, shelf.refused):
        return
    evidence = f"{many(shelf.refused, 'snapshot')} refused in {facts.window}: {_use(shelf)}."
    if shelf.is_full:
        advice = f"Raise {_setting(facts, shelf)}, or shorten pool.ttl_seconds."
        yield Finding("bad", "pool", f"{capital(shelf.name)} refuses snapshots", evidence, advice)
    else:
        yield Finding("look", "pool", f"{capital(shelf.name)} refused snapshots for a while", evidence, OVER)


def _of_losses(facts: Situation, shelf: Shelf) -> Iterator[Finding]:
    evidence = f"{many(shelf.evicted, 'snapshot')} went before their time in {facts.window}: {_use(shelf)}."
    title, raise_it = f"{capital(shelf.name)} is too small", f"Raise {_setting(facts, shelf)}."
    if _matters(shelf, shelf.crowded_out) and shelf.is_full:
        level: Level = "bad" if _share_of(shelf, shelf.crowded_out) >= _SHARE_BAD else "look"
        yield Finding(level, "pool", title, evidence, raise_it)
    elif _matters(shelf, shelf.crowded_out):
        yield Finding("look", "pool", f"{capital(shelf.name)} was too small, and has room now", evidence, OVER)
    elif _matters(shelf, shelf.evicted):
        advice = "See whether its Redis was restarted, emptied, or short of memory for others' keys."
        yield Finding("look", "pool", f"{capital(shelf.name)} lost snapshots", evidence, advice)
    elif _is_part_full(facts, shelf):
        evidence = f"Its part is full, so its oldest snapshots go: {_use(shelf)}."
        yield Finding("look", "pool", title, evidence, raise_it)


def _of_size(facts: Situation, shelf: Shelf) -> Iterator[Finding]:
    """Whether enough snapshots fit into it at all."""
    budget = shelf.state.budget_bytes
    if budget and shelf.snapshot_bytes and budget < _FEW_SNAPSHOTS * shelf.snapshot_bytes:
        fits = budget // shelf.snapshot_bytes
        holds = f"has room for {fits} of them" if fits else "has no room for one"
        evidence = f"A snapshot takes {size(shelf.snapshot_bytes)}; {shelf.name}, of {size(budget)}, {holds}."
        if not fits and shelf.refused:
            evidence += f" In {facts.window} {many(shelf.refused, 'snapshot')} refused."
        title = f"{capital(shelf.name)} holds few snapshots" if fits else f"{capital(shelf.name)} holds no snapshot"
        yield Finding("look" if fits else "bad", "pool", title, evidence, f"Raise {_setting(facts, shelf)}.")


def _why_small(facts: Situation, shelf: Shelf) -> str | None:
    """Why it is too small now; None when it is not."""
    if _holds_none(shelf):
        return f"has no room for one snapshot of {size(shelf.snapshot_bytes)}"
    if shelf.is_full and _matters(shelf, shelf.refused):
        return "refuses snapshots"
    if shelf.is_full and _matters(shelf, shelf.crowded_out):
        return "gives up snapshots before their time"
    return "has no room left in its part" if _is_part_full(facts, shelf) else None


def _serves(facts: Situation) -> bool:
    return facts.now.get("up.dram", 1.0) >= 1


def _holds_none(shelf: Shelf) -> bool:
    return 0 < shelf.state.budget_bytes < shelf.snapshot_bytes


def _is_part_full(facts: Situation, shelf: Shelf) -> bool:
    """Of a Redis nobody knows which tenant's snapshots went, but whose part of it is full."""
    return facts.pool_is_redis and bool(shelf.state.tenant) and shelf.share >= _ALMOST_FULL


def _matters(shelf: Shelf, lost: int) -> bool:
    """Whether so many that went or were refused are more than chance."""
    return lost >= _FEW and _share_of(shelf, lost) >= _SHARE_TO_LOOK


def _share_of(shelf: Shelf, lost: int) -> float:
    """Of the snapshots that were kept, then or now."""
    return lost / (lost + shelf.state.records)


def _setting(facts: Situation, shelf: Shelf) -> str:
    return "maxmemory of its Redis" if facts.pool_is_redis and not shelf.state.tenant else shelf.setting


def _use(shelf: Shelf) -> str:
    used, budget = shelf.state.used_bytes, shelf.state.budget_bytes
    of = f"{percent(used / budget)} of its {size(budget)} is in use" if budget else f"{size(used)} are in use"
    return f"{shelf.name}: {of}" if shelf.state.tenant else of
