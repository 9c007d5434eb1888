"""The tier's own time: the wall clock, but it never goes back."""

import threading

from storage.clock import Clock

_STEP_SECONDS = 1.0
"""Differences between wall and monotonic clock below this are drift, not steps."""


class ShelfClock:
    """Wall-clock seconds that survive a restart and never go back, so that no record is ever used in the future.

    When the wall clock steps back, time goes on from where it was, ahead of the wall clock by the step. A later step
    forward is taken for the correction of that one first. A step forward without one before it is believed.

    Args:
        clock: the clocks to follow.
        latest: the latest time that was seen before, such as the one written to disk.
    """

    def __init__(self, clock: Clock, latest: float) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._wall, self._monotonic = clock.now(), clock.monotonic()
        self._ahead = max(0.0, latest - self._wall)
        self._latest = self._wall + self._ahead

    def now(self) -> float:
        """Seconds since the epoch, never less than any value returned before."""
        with self._lock:
            wall, monotonic = self._clock.now(), self._clock.monotonic()
            step = (wall - self._wall) - (monotonic - self._monotonic)
            self._wall, self._monotonic = wall, monotonic
            if step < -_STEP_SECONDS:
                self._ahead -= step
            elif step > _STEP_SECONDS:
                self._ahead = max(0.0, self._ahead - step)
            self._latest = max(self._latest, wall + self._ahead)
            return self._latest
