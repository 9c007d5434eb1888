"""How fast the shelves of the SSD fill while something is written."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from service.overview.history import Kept

LEAST_SECONDS = 60.0
"""Of writing: from less than that nothing is foretold."""

RECENT_SECONDS = 60.0
"""So long ago something must have been written for a shelf to be growing."""


class Growth(NamedTuple):
    """Net growth of each shelf, by its key, in bytes a second of the ``seconds`` in which something was written.

    ``is_going_on`` says whether something was written within the last minute.
    """

    rates: dict[tuple[str, str], float]
    seconds: float
    is_going_on: bool


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
    return Growth({key: grown / seconds for key, grown in rates.items()} if seconds else {}, seconds, is_going_on)


def _written(one: Kept) -> float:
    return one.sample.get("bytes.ssd.write", 0.0)
