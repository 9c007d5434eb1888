"""A circuit breaker: the states, and what moves between them. Knows nothing of tiers."""

import threading
from collections.abc import Callable
from enum import StrEnum

from storage.clock import Clock


class BreakerState(StrEnum):
    """Whether calls reach the tier. The values are those of the metric."""

    CLOSED = "closed"
    """They do."""
    OPEN = "open"
    """They are answered ``TIER_DOWN`` at once."""
    HALF_OPEN = "half_open"
    """One call is on its way to see how the tier is; the others are answered at once."""


class Breaker:
    """Decides which calls are made, from how the earlier ones went. Thread-safe.

    ``faults_to_open`` faults in a row open it. After a delay the next call is let through as a probe: when that goes
    well the breaker closes, else it opens again for twice as long, up to ``max_delay_seconds``. Calls that began before
    the last change of state say nothing about the new one, and are not counted.

    Args:
        clock: for the delays (monotonic).
        faults_to_open: at least 1.
        first_delay_seconds: how long it is open the first time.
        max_delay_seconds: the longest it stays open without a probe.
        jitter: numbers in [0, 1); each delay is cut by up to a fifth of itself, so that many services do not probe
            as one.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        faults_to_open: int,
        first_delay_seconds: float,
        max_delay_seconds: float,
        jitter: Callable[[], float],
    ) -> None:
        if faults_to_open < 1 or not 0 < first_delay_seconds <= max_delay_seconds:
            raise ValueError("faults_to_open is at least 1, and 0 < first_delay_seconds <= max_delay_seconds")
        self._clock = clock
        self._faults_to_open = faults_to_open
        self._first_delay_seconds = first_delay_seconds
        self._max_delay_seconds = max_delay_seconds
        self._jitter = jitter
        self._lock = threading.Lock()
        self._state = BreakerState.CLOSED
        self._turn = 0
        self._faults = 0
        self._delay_seconds = first_delay_seconds
        self._probe_at = 0.0

    @property
    def state(self) -> BreakerState:
        """The state now."""
        return self._state

    def begin(self) -> int | None:
        """Ask to make a call: a number to end it with, or None when it must not be made.

        Every call that was begun must be ended, by :meth:`end`.
        """
        with self._lock:
            if self._state is BreakerState.OPEN and self._clock.monotonic() >= self._probe_at:
                self._become(BreakerState.HALF_OPEN)
                return self._turn
            return self._turn if self._state is BreakerState.CLOSED else None

    def end(self, turn: int, *, is_well: bool | None) -> None:
        """Say how a call that was begun went; None when it came to no answer, which only fails a probe."""
        with self._lock:
            if turn != self._turn or (is_well is None and self._state is BreakerState.CLOSED):
                return
            if is_well:
                self._faults = 0
                if self._state is BreakerState.HALF_OPEN:
                    self._delay_seconds = self._first_delay_seconds
                    self._become(BreakerState.CLOSED)
                return
            self._faults += 1
            if self._state is BreakerState.HALF_OPEN or self._faults >= self._faults_to_open:
                self._open()

    def _open(self) -> None:
        if self._state is BreakerState.HALF_OPEN:
            self._delay_seconds = min(2 * self._delay_seconds, self._max_delay_seconds)
        self._become(BreakerState.OPEN)
        self._probe_at = self._clock.monotonic() + self._delay_seconds * (1 - self._jitter() / 5)

    def _become(self, state: BreakerState) -> None:
        self._state = state
        self._turn += 1
        self._faults = 0
