"""How fast the shelves of the SSD fill while something is written, and how fast others take its file system."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from service.overview.history import Kept

LEAST_SECONDS = 60.0
"""Of writing: from less than that nothing is foretold."""

RECENT_SECONDS = 60.0
"""So long ago something must have been written for a shelf to be growing."""

_LEAST_RATES = 3


class Growth(NamedTuple):
    """Net growth of each shelf, by its key, in bytes a second of the ``seconds`` in which something was written.

    ``is_going_on`` says whether something was written within the last minute; ``others`` are the bytes a second that
    files of others took of the file system in that minute.
    """

    rates: dict[tuple[str, str], float]
    seconds: float
    is_going_on: bool
    others: float


def growth(kept: Sequence[Kept]) -> Growth:
    """From samples in order. Time in which nothing was written counts for nothing, so the rate outlives no load."""
    rates: dict[tuple[str, str], float] = {}
    seconds, last_at = 0.0, None
    for before, after in pairwise(kept):
        if _written(after) <= _written(before):
            continue
        seconds += after.moment - before.moment
        last_at = after.moment
        filled = {shelf.key: shelf.filled_bytes for shelf in before.shelves}
        for shelf in after.shelves:
            rates[shelf.key] = rates.get(shelf.key, 0.0) + shelf.filled_bytes - filled.get(shelf.key, 0)
    is_going_on = last_at is not None and kept[-1].moment - last_at <= RECENT_SECONDS
    per_second = {key: grown / seconds for key, grown in rates.items()} if seconds else {}
    return Growth(per_second, seconds, is_going_on, _of_others(kept))


def _of_others(kept: Sequence[Kept]) -> float:
    """The median over the last minute: one large file that was copied at once is no growth."""
    recent = [one for one in kept if kept[-1].moment - one.moment <= RECENT_SECONDS]
    rates = [
        (_left_by_others(before) - _left_by_others(after)) / (after.moment - before.moment)
        for before, after in pairwise(recent)
        if after.moment > before.moment
    ]
    return max(0.0, median(rates)) if len(rates) >= _LEAST_RATES else 0.0


def _left_by_others(one: Kept) -> float:
    """What is free or taken by segments."""
    return one.sample.get("disk_free", 0.0) + sum(shelf.used_bytes for shelf in one.shelves if shelf.tier == "ssd")


def _written(one: Kept) -> float:
    return one.sample.get("bytes.ssd.write", 0.0)
