"""Points in time by which something must be done. The one module of this package that has to do with clocks."""

import time
from collections.abc import Callable

Monotonic = Callable[[], float]
"""Seconds from a fixed point in the past; never goes back."""

monotonic: Monotonic = time.monotonic
sleep: Callable[[float], object] = time.sleep


_MOST_SECONDS = 1e6
"""Eleven days: about as long as the system's own calls can be told to wait."""


class Deadline:
    """An absolute point in time. Hand it on as it is: what calls something else inside has no more time than itself.

    Args:
        seconds: from now, cut to eleven days.
        clock: what "now" is.
    """

    __slots__ = ("_at", "_clock")

    def __init__(self, seconds: float, clock: Monotonic = monotonic) -> None:
        self._clock = clock
        self._at = clock() + min(seconds, _MOST_SECONDS)

    @property
    def remaining_seconds(self) -> float:
        """The time that is left, 0 once it is over."""
        return max(0.0, self._at - self._clock())

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self._clock() >= self._at

    def within(self, seconds: float) -> "Deadline":
        """The earlier of this one and one so many seconds from now."""
        earlier = Deadline(seconds, self._clock)
        return earlier if earlier._at < self._at else self
