"""Who takes the room of the SSD's file system: the store's own segments, or files of others."""

from typing import NamedTuple

from service.overview.situation import Shelf, Situation
from storage.ssd.sizing import segment_bytes

_SPENT = 0.8
_SEGMENTS_LEFT = 4
"""A small budget is spent with so many segments to go: the reserve, the active one, and what the index may need."""

_BUDGET_SHARE = 0.9
"""Of what could be had, a budget leaves room for the index to grow and for small files of others."""

GET_SPACE = "Free space on the SSD's file system, or give the store a larger one."
"""The advice where the file system is what lacks."""


class Space(NamedTuple):
    """Bytes of the file system, and what the budgets say. ``whole`` is 0 where the file system does not matter."""

    whole: float
    free: float
    taken: int
    filled: int
    budget: int
    segment: int
    is_out: bool

    @property
    def others(self) -> float:
        """What files of others take."""
        return max(0.0, self.whole - self.free - self.taken)

    @property
    def is_short(self) -> bool:
        """Whether the budgets are more than can be had."""
        return self.whole > 0 and self.budget > self.taken + self.free

    @property
    def is_of_others(self) -> bool:
        """Whether the budgets could be had if others had no files there."""
        return self.budget <= self.whole

    @property
    def budget_that_fits(self) -> float:
        """What the budgets should come to."""
        return _BUDGET_SHARE * (self.taken + self.free)


def space_of(facts: Situation) -> Space:
    """The room as it is now."""
    shelves = facts.of_tier("ssd")
    whole = 0.0 if facts.store_is_redis else facts.now.get("disk_size", 0.0)
    free, segment = facts.now.get("disk_free", 0.0), min(map(_segment_bytes, shelves), default=0)
    return Space(
        whole=whole,
        free=free,
        taken=sum(shelf.state.used_bytes for shelf in shelves),
        filled=sum(shelf.state.filled_bytes for shelf in shelves),
        budget=sum(shelf.state.budget_bytes for shelf in shelves),
        segment=segment,
        is_out=whole > 0 and free < segment and any(_wants_more(facts, shelf) for shelf in shelves),
    )


def is_spent(shelf: Shelf) -> bool:
    """Whether the budget forces blocks out: it did, and there is no more room now."""
    return (bool(shelf.evicted) or shelf.state.retention_seconds is not None) and _is_filled(shelf)


def is_refusing(facts: Situation, shelf: Shelf) -> bool:
    """Whether its budget is why blocks were refused, and still would be."""
    may_refuse = facts.store_is_redis or facts.when_full == "refuse"
    return bool(shelf.refused) and may_refuse and _is_filled(shelf)


def has_room(facts: Situation) -> bool:
    """Whether blocks that are stored now stay."""
    shelves = facts.of_tier("ssd")
    return not space_of(facts).is_out and not any(is_spent(shelf) or is_refusing(facts, shelf) for shelf in shelves)


def more_room(facts: Situation) -> str:
    """How the SSD gets more room: its file system when that is what lacks, else its budget."""
    space = space_of(facts)
    if space.is_out or space.is_short:
        return GET_SPACE
    short = [shelf.setting for shelf in facts.of_tier("ssd") if is_spent(shelf) or is_refusing(facts, shelf)]
    return f"Raise {' and '.join(short or ['store.budget_bytes'])}, or add a node (kvshelf size)."


def _wants_more(facts: Situation, shelf: Shelf) -> bool:
    """Whether it had to do without a segment that its budget has. In a tier that evicts, a budget refuses nothing."""
    forced = bool(shelf.evicted or shelf.refused) or shelf.state.retention_seconds is not None
    has_budget = shelf.state.budget_bytes - shelf.state.used_bytes >= 2 * _segment_bytes(shelf)
    return (forced and has_budget) or (bool(shelf.refused) and facts.when_full == "evict")


def _is_filled(shelf: Shelf) -> bool:
    left = shelf.state.budget_bytes - shelf.state.filled_bytes
    return left <= max((1 - _SPENT) * shelf.state.budget_bytes, _SEGMENTS_LEFT * _segment_bytes(shelf))


def _segment_bytes(shelf: Shelf) -> int:
    return segment_bytes(shelf.state.budget_bytes) if shelf.state.budget_bytes else 0
