"""When the disk will be full, and what then happens."""

from collections.abc import Iterator
from typing import NamedTuple

from service.overview.finding import Finding, Level
from service.overview.growth import LEAST_SECONDS
from service.overview.situation import Shelf, Situation
from service.overview.words import DAY_SECONDS, capital, count, duration, percent, size
from storage.ssd.sizing import segment_bytes

_RETENTION_BAD = 0.25
_SPENT = 0.8
_LOOSE = 2


class _End(NamedTuple):
    """What runs out in ``seconds``, and what happens then."""

    seconds: float
    what: str
    then: str


def when_full(facts: Situation) -> tuple[str, Level]:
    """The fourth question's answer."""
    shelves = facts.of_tier("ssd")
    parts = [_forecast(facts, shelves), *(f"{_filled(shelf)}" for shelf in shelves)]
    free, whole = facts.now.get("disk_free", 0.0), facts.now.get("disk_size", 0.0)
    if whole and not facts.store_is_redis:
        parts.append(f"{size(free)} of the file system's {size(whole)} are free")
    return "; ".join(parts) + ".", "good"


def findings(facts: Situation) -> Iterator[Finding]:
    """Where room is short, and where it soon will be."""
    shelves = facts.of_tier("ssd")
    if _is_short(facts, shelves):
        yield _of_file_system(facts, shelves)
    for shelf in shelves:
        if not _is_disk_full(facts, shelves):
            yield from _of_shelf(facts, shelf)
    end = _end(facts, shelves)
    if end is not None and not any(map(_is_spent, shelves)) and end.seconds < DAY_SECONDS:
        yield Finding(
            "look", "disk", f"{capital(end.what)} will be full in {duration(end.seconds)}",
            f"At the rate of the last {duration(facts.growth.seconds)} of writing; {end.then}.",
            "Give it more room, add a node, or shorten store.ttl_seconds (kvshelf size).",
        )  # fmt: skip


def _of_shelf(facts: Situation, shelf: Shelf) -> Iterator[Finding]:
    if shelf.refused:
        evict = "" if facts.store_is_redis else "; or set store.when_full to evict"
        yield Finding(
            "bad", "disk", f"{capital(shelf.name)} is full and refuses blocks",
            f"{count(shelf.refused)} blocks were refused in {facts.window}: {_filled(shelf)}, and"
            f" store.when_full is {facts.when_full}.",
            f"Raise {shelf.setting}, or shorten store.ttl_seconds{evict}.",
        )  # fmt: skip
    elif _is_spent(shelf):
        retention, life = shelf.state.retention_seconds or 0.0, facts.now.get("ttl.ssd", 0.0)
        yield Finding(
            "bad" if retention < _RETENTION_BAD * life else "look", "disk",
            f"{capital(shelf.name)} is full: its oldest blocks go",
            f"They go after {duration(retention)}, not {duration(life)}: {_filled(shelf)}.",
            f"Raise {shelf.setting}, add a node, or accept a shorter store.ttl_seconds (kvshelf size).",
        )  # fmt: skip


def _of_file_system(facts: Situation, shelves: list[Shelf]) -> Finding:
    free, used = facts.now.get("disk_free", 0.0), sum(shelf.state.used_bytes for shelf in shelves)
    evidence = f"{size(free)} are free, and store.budget_bytes would take {size(_room(shelves))} more"
    advice = f"Free space, or lower store.budget_bytes: it has room for {size(used + free)}."
    if not _is_disk_full(facts, shelves):
        return Finding("look", "disk", "The file system is smaller than the budget", f"{evidence}.", advice)
    refused, evicted = sum(shelf.refused for shelf in shelves), sum(shelf.evicted for shelf in shelves)
    forced = [one.state.retention_seconds for one in shelves if one.state.retention_seconds is not None]
    if refused:
        evidence += f"; {count(refused)} blocks were refused in {facts.window}"
    elif evicted and forced:
        evidence += f"; the oldest blocks go after {duration(min(forced))}"
    return Finding("bad", "disk", "The file system is full, before the budget is", f"{evidence}.", advice)


def _is_short(facts: Situation, shelves: list[Shelf]) -> bool:
    is_known = bool(facts.now.get("disk_size")) and not facts.store_is_redis
    return is_known and facts.now.get("disk_free", 0.0) < _room(shelves)


def _is_disk_full(facts: Situation, shelves: list[Shelf]) -> bool:
    """Whether there is no room for one more segment, though the budget has it."""
    least = min((segment_bytes(shelf.state.budget_bytes) for shelf in shelves if shelf.state.budget_bytes), default=0)
    return _is_short(facts, shelves) and facts.now.get("disk_free", 0.0) < least < _room(shelves)


def _room(shelves: list[Shelf]) -> int:
    """What the budgets may still take of the file system."""
    return sum(shelf.state.budget_bytes - shelf.state.used_bytes for shelf in shelves)


def _is_spent(shelf: Shelf) -> bool:
    """Whether the budget forces blocks out: it did in the window, or did before and there is no more room now."""
    return bool(shelf.evicted) or (shelf.state.retention_seconds is not None and shelf.share >= _SPENT)


def _forecast(facts: Situation, shelves: list[Shelf]) -> str:
    if _is_disk_full(facts, shelves):
        return "The file system is full now"
    full = [shelf.name for shelf in shelves if shelf.refused or _is_spent(shelf)]
    if full:
        return f"{capital(' and '.join(full))} is full now"
    rates = facts.growth.rates
    if not facts.growth.is_going_on or not any(rates.get(shelf.state.key, 0.0) > 0 for shelf in shelves):
        return "It does not grow"
    if facts.growth.seconds < LEAST_SECONDS:
        return f"It grows, and after {duration(facts.growth.seconds)} of that it is too early to say"
    end = _end(facts, shelves)
    if end is None:
        return "Not at this rate: blocks expire before it is"
    return f"At this rate {end.what} is full in {duration(end.seconds)}, and {end.then}"


def _end(facts: Situation, shelves: list[Shelf]) -> _End | None:
    """What runs out first, if anything does before blocks expire."""
    if not facts.growth.is_going_on or facts.growth.seconds < LEAST_SECONDS:
        return None
    rates = {shelf.state.key: max(0.0, facts.growth.rates.get(shelf.state.key, 0.0)) for shelf in shelves}
    then = "then the oldest blocks go" if facts.when_full == "evict" else "then stores are refused"
    ends = [
        _End(
            (shelf.state.budget_bytes - shelf.state.filled_bytes) / rates[shelf.state.key],
            f"{shelf.name}'s budget of {size(shelf.state.budget_bytes)}",
            then,
        )
        for shelf in shelves
        if rates[shelf.state.key] and shelf.state.budget_bytes
    ]
    total = sum(rates.values())
    if total and _is_short(facts, shelves):
        ahead = sum(shelf.state.used_bytes - shelf.state.filled_bytes for shelf in shelves)
        ends.append(_End((facts.now.get("disk_free", 0.0) + ahead) / total, "the file system", then))
    first = min(ends, default=None)
    return first if first is not None and first.seconds < facts.now.get("ttl.ssd", 0.0) else None


def _filled(shelf: Shelf) -> str:
    state = shelf.state
    if not state.budget_bytes:
        return f"{shelf.name} has {size(state.filled_bytes)}, and no budget is known"
    return f"{percent(shelf.share)} of {shelf.name}'s budget of {size(state.budget_bytes)} is filled"
