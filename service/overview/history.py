"""The last hour of samples, in memory: a page that is opened now shows what was before."""

import threading
from collections import deque
from typing import NamedTuple

from service.overview.samples import Sample, take
from service.shelf.parts import Parts
from service.shelf.watched import ShelfState

INTERVAL_SECONDS = 10.0
SAMPLES = 360


class Kept(NamedTuple):
    """A sample with its number, counted from 1, and its time in seconds: ``at`` by the wall, ``moment`` monotonic."""

    number: int
    at: float
    moment: float
    sample: Sample
    shelves: list[ShelfState]


class History:
    """Takes a sample every :data:`INTERVAL_SECONDS` and keeps the last :data:`SAMPLES`. Thread-safe.

    Args:
        parts: what is sampled.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._kept: deque[Kept] = deque(maxlen=SAMPLES)
        self._taken = 0
        self._due_at = 0.0

    def step(self) -> None:
        """Take a sample when one is due: called by the upkeep, more often than that."""
        now = self._parts.clock.monotonic()
        if self._kept and now < self._due_at:
            return
        self._due_at = now + INTERVAL_SECONDS
        taken = self.now()
        with self._lock:
            self._taken += 1
            self._kept.append(taken)

    def after(self, number: int) -> list[Kept]:
        """The samples kept that were taken after the one of that number, oldest first; 0 for all."""
        with self._lock:
            return [kept for kept in self._kept if kept.number > number]

    def now(self) -> Kept:
        """A sample of now, which is not kept."""
        clock = self._parts.clock
        return Kept(self._taken + 1, clock.now(), clock.monotonic(), take(self._parts), self._parts.shelves())
