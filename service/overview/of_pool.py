"""Whether the DRAM pool is too small."""

from collections.abc import Iterator

from service.overview.finding import Finding, Level
from service.overview.situation import Shelf, Situation
from service.overview.words import capital, count, percent, size

_SHARE_TO_LOOK, _SHARE_BAD = 0.01, 0.1
_FULL = 0.7
"""Of its budget a pool must have had in use for what went to have gone for want of room."""

_ALMOST_FULL = 0.95
_FEW_SNAPSHOTS = 20


def is_it_too_small(facts: Situation) -> tuple[str, Level]:
    """The third question's answer."""
    shelves = facts.of_tier("dram")
    if facts.now.get("up.dram", 1.0) < 1:
        return "It does not serve at present, so nobody can tell.", "bad"
    filled = "; ".join(_use(shelf) for shelf in shelves)
    troubled = [shelf for shelf in shelves if _is_small(facts, shelf)]
    if troubled:
        names = " and ".join(shelf.name for shelf in troubled)
        return f"Yes{f': {names}' if len(shelves) > 1 else ''}. {capital(filled)}.", "good"
    if not any(shelf.state.records or shelf.state.used_bytes for shelf in shelves) and not facts.grew(
        "stores.snapshot.stored"
    ):
        return f"No snapshot was stored yet; {filled}.", "none"
    if any(shelf.evicted for shelf in shelves):
        return f"No: some were lost in {facts.window}, but not for want of room. {capital(filled)}.", "good"
    return f"No: nothing went before its time in {facts.window}, and nothing was refused. {capital(filled)}.", "good"


def findings(facts: Situation) -> Iterator[Finding]:
    """What the pool, or a tenant's part of it, is too small for."""
    for shelf in facts.of_tier("dram"):
        yield from _of_shelf(facts, shelf)


def _of_shelf(facts: Situation, shelf: Shelf) -> Iterator[Finding]:
    setting = "maxmemory of its Redis" if facts.pool_is_redis and not shelf.state.tenant else shelf.setting
    raise_it = f"Raise {setting}, or shorten pool.ttl_seconds."
    budget = shelf.state.budget_bytes
    holds_none = 0 < budget < shelf.snapshot_bytes
    if shelf.refused and not holds_none:
        evidence = f"{count(shelf.refused)} snapshots were refused in {facts.window}: {_use(shelf)}."
        yield Finding("bad", "pool", f"{capital(shelf.name)} refuses snapshots", evidence, raise_it)
    if _evicts(facts, shelf):
        share = _evicted_share(shelf)
        evidence = f"{count(shelf.evicted)} snapshots went before their time in {facts.window}: {_use(shelf)}."
        level: Level = "bad" if share >= _SHARE_BAD else "look"
        yield Finding(level, "pool", f"{capital(shelf.name)} is too small", evidence, raise_it)
    elif shelf.evicted:
        evidence = f"{count(shelf.evicted)} went in {facts.window}, and there was room: {_use(shelf)}."
        title = f"{capital(shelf.name)} lost snapshots"
        advice = "See whether its Redis was restarted, emptied, or short of memory for others' keys."
        yield Finding("look", "pool", title, evidence, advice)
    elif _is_part_full(facts, shelf):
        evidence = f"Its part is full, so its oldest snapshots go: {_use(shelf)}."
        yield Finding("look", "pool", f"{capital(shelf.name)} is too small", evidence, raise_it)
    if budget and shelf.snapshot_bytes and budget < _FEW_SNAPSHOTS * shelf.snapshot_bytes:
        fits = budget // shelf.snapshot_bytes
        holds = f"has room for {fits} of them" if fits else "has no room for one"
        evidence = f"A snapshot takes {size(shelf.snapshot_bytes)}; {shelf.name}, of {size(budget)}, {holds}."
        if holds_none and shelf.refused:
            evidence += f" {count(shelf.refused)} were refused in {facts.window}."
        title = f"{capital(shelf.name)} holds few snapshots" if fits else f"{capital(shelf.name)} holds no snapshot"
        yield Finding("look" if fits else "bad", "pool", title, evidence, f"Raise {setting}.")


def _is_small(facts: Situation, shelf: Shelf) -> bool:
    holds_none = 0 < shelf.state.budget_bytes < shelf.snapshot_bytes
    return bool(shelf.refused) or holds_none or _evicts(facts, shelf) or _is_part_full(facts, shelf)


def _evicts(facts: Situation, shelf: Shelf) -> bool:
    """Whether snapshots go for want of room. A Redis that is restarted loses them, too, but was not full before."""
    budget = shelf.state.budget_bytes
    was_full = budget > 0 and shelf.peak_share + shelf.snapshot_bytes / budget >= _FULL
    return _evicted_share(shelf) >= _SHARE_TO_LOOK and (was_full or not facts.pool_is_redis)


def _is_part_full(facts: Situation, shelf: Shelf) -> bool:
    """Of a Redis nobody knows which tenant's snapshots went, but whose part of it is full."""
    return facts.pool_is_redis and bool(shelf.state.tenant) and shelf.share >= _ALMOST_FULL


def _evicted_share(shelf: Shelf) -> float:
    """Of the snapshots that were kept, then or now."""
    return shelf.evicted / (shelf.evicted + shelf.state.records) if shelf.evicted else 0.0


def _use(shelf: Shelf) -> str:
    used, budget = shelf.state.used_bytes, shelf.state.budget_bytes
    of = f"{percent(used / budget)} of its {size(budget)} is in use" if budget else f"{size(used)} are in use"
    return f"{shelf.name}: {of}" if shelf.state.tenant else of
