"""When the disk will be full, and what then happens."""

from collections.abc import Iterator
from typing import NamedTuple

from service.overview.finding import OVER, Finding, Level
from service.overview.growth import LEAST_SECONDS
from service.overview.situation import Shelf, Situation
from service.overview.space import GET_SPACE, Space, is_refusing, is_spent, more_room, space_of
from service.overview.words import DAY_SECONDS, capital, duration, many, percent, size

_RETENTION_BAD, _RETENTION_TO_LOOK = 0.25, 0.5
_NEAR_SECONDS, _SHARE_TO_FORETELL = 3600.0, 0.1
"""A further end is foretold only of a shelf of which so much is filled, and never by a minute of others' growth."""


class _End(NamedTuple):
    """What runs out in ``seconds``, what happens then, whether that hurts, and what to do about it."""

    seconds: float
    what: str
    then: str
    hurts: bool
    advice: str


def when_full(facts: Situation) -> tuple[str, Level]:
    """The fourth question's answer."""
    space = space_of(facts)
    parts = [_forecast(facts, space), *map(_filled, facts.of_tier("ssd"))]
    if space.whole:
        parts.append(f"{size(space.free)} of the file system's {size(space.whole)} are free")
    return "; ".join(parts) + ".", "good"


def findings(facts: Situation) -> Iterator[Finding]:
    """Where room is short, and where it soon will be."""
    space, shelves = space_of(facts), facts.of_tier("ssd")
    if space.is_out or space.is_short:
        yield _of_file_system(facts, space)
    if not space.is_out:
        for shelf in shelves:
            yield from _of_shelf(facts, shelf)
    end = _end(facts, space)
    if end is not None and end.hurts and end.seconds < DAY_SECONDS and not space.is_out:
        yield Finding(
            "look", "disk", f"{capital(end.what)} will be full in {duration(end.seconds)}",
            f"At the rate of the last {duration(max(LEAST_SECONDS, facts.growth.seconds))} of writing; {end.then}.",
            end.advice,
        )  # fmt: skip


def _of_shelf(facts: Situation, shelf: Shelf) -> Iterator[Finding]:
    if is_refusing(facts, shelf):
        evict = "" if facts.store_is_redis else "; or set store.when_full to evict"
        yield Finding(
            "bad", "disk", f"{capital(shelf.name)} is full and refuses blocks",
            f"{many(shelf.refused, 'block')} refused in {facts.window}: {_filled(shelf)}, and"
            f" store.when_full is {facts.when_full}.",
            f"Raise {shelf.setting}, or shorten store.ttl_seconds{evict}.",
        )  # fmt: skip
    elif is_spent(shelf):
        yield from _of_evictions(facts, shelf)
    elif shelf.refused or shelf.evicted:
        lost = many(shelf.refused, "block") + " refused" if shelf.refused else many(shelf.evicted, "block") + " evicted"
        title = f"{capital(shelf.name)} was short of room for a while"
        yield Finding("look", "disk", title, f"{lost} in {facts.window}, and there is room again.", OVER)


def _of_evictions(facts: Situation, shelf: Shelf) -> Iterator[Finding]:
    """A budget that fills is no ailment as long as blocks live for a good part of their TTL."""
    retention, life = shelf.state.retention_seconds or 0.0, facts.now.get("ttl.ssd", 0.0)
    if retention < _RETENTION_TO_LOOK * life:
        yield Finding(
            "bad" if retention < _RETENTION_BAD * life else "look", "disk",
            f"{capital(shelf.name)} is full: its oldest blocks go",
            f"They go after {duration(retention)}, not {duration(life)}: {_filled(shelf)}.",
            more_room(facts),
        )  # fmt: skip


def _of_file_system(facts: Situation, space: Space) -> Finding:
    evidence = f"{size(space.free)} of {size(space.whole)} are free: others' files take {size(space.others)}, segments"
    evidence += f" {size(space.taken)} of a budget of {size(space.budget)}"
    lower = f"lower store.budget_bytes to {size(space.budget_that_fits)}"
    advice = f"{capital(lower)}, or give the store a larger file system."
    if space.is_of_others:
        advice = f"Free space, give the store a file system of its own, or {lower}."
    if not space.is_out:
        what = "Others' files take room that the budget counts on"
        title = what if space.is_of_others else "The file system is smaller than the budget"
        return Finding("look", "disk", title, f"{evidence}.", advice)
    whose = " of others' files" if space.is_of_others else ", before the budget is"
    return Finding("bad", "disk", f"The file system is full{whose}", f"{evidence}{_forced(facts)}.", advice)


def _forced(facts: Situation) -> str:
    """What a lack of room led to."""
    shelves = facts.of_tier("ssd")
    refused, evicted = sum(shelf.refused for shelf in shelves), sum(shelf.evicted for shelf in shelves)
    kept = [one.state.retention_seconds for one in shelves if one.state.retention_seconds is not None]
    if refused:
        return f"; {many(refused, 'block')} refused in {facts.window}"
    return f"; the oldest blocks go after {duration(min(kept))}" if evicted and kept else ""


def _forecast(facts: Situation, space: Space) -> str:
    if space.is_out:
        return "The file system is full now"
    full = [shelf.name for shelf in facts.of_tier("ssd") if is_refusing(facts, shelf) or is_spent(shelf)]
    if full:
        return f"{capital(' and '.join(full))} is full now"
    end = _end(facts, space)
    if end is not None:
        return f"At this rate {end.what} is full in {duration(end.seconds)}, and {end.then}"
    if not facts.growth.is_going_on or not any(rate > 0 for rate in facts.growth.rates.values()):
        return "It does not grow"
    if facts.growth.seconds < LEAST_SECONDS:
        return f"It grows, and after {duration(facts.growth.seconds)} of that it is too early to say"
    return "Not at this rate: blocks expire before it is"


def _end(facts: Situation, space: Space) -> _End | None:
    """What runs out first, if anything does before blocks expire."""
    is_known = facts.growth.is_going_on and facts.growth.seconds >= LEAST_SECONDS
    ends, total, life = [], 0.0, facts.now.get("ttl.ssd", 0.0)
    for shelf in facts.of_tier("ssd"):
        rate = max(0.0, facts.growth.rates.get(shelf.state.key, 0.0)) if is_known and not is_spent(shelf) else 0.0
        total += rate
        if rate and shelf.state.budget_bytes:
            ends.append(_end_of_budget(facts, shelf, rate))
    others = facts.growth.others if facts.growth.others * _NEAR_SECONDS > space.free else 0.0
    if space.whole and others + total > 0:
        ends.append(_end_of_file_system(space, total, others))
    first = min(ends, default=None)
    return first if first is not None and first.seconds < life else None


def _end_of_budget(facts: Situation, shelf: Shelf, rate: float) -> _End:
    """Filling its budget is what a shelf that evicts is for, unless it does so in a small part of the TTL."""
    seconds = (shelf.state.budget_bytes - shelf.state.filled_bytes) / rate
    evicts = facts.when_full == "evict"
    is_ample = shelf.state.budget_bytes / rate >= _RETENTION_BAD * facts.now.get("ttl.ssd", 0.0)
    is_sure = seconds < _NEAR_SECONDS or shelf.share >= _SHARE_TO_FORETELL
    then = "then the oldest blocks go" if evicts else "then stores are refused"
    what = f"{shelf.name}'s budget of {size(shelf.state.budget_bytes)}"
    advice = f"Raise {shelf.setting}, or add a node (kvshelf size)."
    return _End(seconds, what, then, is_sure and not (evicts and is_ample), advice)


def _end_of_file_system(space: Space, rate: float, others: float) -> _End:
    """The store fills its segments before it takes more; others take what is free."""
    seconds = (space.free + space.taken - space.filled) / (rate + others)
    if others:
        seconds = min(seconds, space.free / others)
    whose = "others' files fill it, too, and " if others > rate else ""
    then = f"{whose}then the oldest blocks go or stores are refused"
    return _End(seconds, "the file system", then, True, GET_SPACE)


def _filled(shelf: Shelf) -> str:
    state = shelf.state
    if not state.budget_bytes:
        return f"{shelf.name} has {size(state.filled_bytes)}, and no budget is known"
    return f"{percent(shelf.share)} of {shelf.name}'s budget of {size(state.budget_bytes)} is filled"
