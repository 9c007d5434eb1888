"""A circuit breaker: the states, and what moves between them. The client has one, and each tier that can go away."""

import threading
from collections import deque
from collections.abc import Callable
from enum import Enum

from kvshelf_client.deadline import Monotonic


class BreakerState(str, Enum):
    """Whether calls are made. The values are those of the metric."""

    CLOSED = "closed"
    """They do."""
    OPEN = "open"
    """They are not, and end at once."""
    HALF_OPEN = "half_open"
    """One call is on its way to see how it goes; the others end at once."""


WINDOW_CALLS = 8
"""How many of the last calls count."""


class Breaker:
    """Decides which calls are made, from how the earlier ones went. Thread-safe.

    ``faults_to_open`` faults among the last ``WINDOW_CALLS`` calls open it: a tier that is slow serves every other call
    and is in trouble all the same. After a delay the next call is let through as a probe: when that goes well the
    breaker closes, else it opens again. Each time the delay is twice as long, up to ``max_delay_seconds``, until a
    whole window went well. Calls that began before the last change of state say nothing about the new one, and are not
    counted.

    Args:
        monotonic: the clock of the delays.
        faults_to_open: from 1 to ``WINDOW_CALLS``.
        first_delay_seconds: how long it is open the first time.
        max_delay_seconds: the longest it stays open without a probe.
        jitter: numbers in [0, 1); each delay is cut by up to a fifth of itself, so that many services do not probe
            as one.
    """

    def __init__(
        self,
        monotonic: Monotonic,
        *,
        faults_to_open: int,
        first_delay_seconds: float,
        max_delay_seconds: float,
        jitter: Callable[[], float],
    ) -> None:
        if not 1 <= faults_to_open <= WINDOW_CALLS or not 0 < first_delay_seconds <= max_delay_seconds:
            raise ValueError(
                f"faults_to_open is from 1 to {WINDOW_CALLS}, and 0 < first_delay_seconds <= max_delay_seconds"
            )
        self._monotonic = monotonic
        self._faults_to_open = faults_to_open
        self._first_delay_seconds = first_delay_seconds
        self._max_delay_seconds = max_delay_seconds
        self._jitter = jitter
        self._lock = threading.Lock()
        self._state = BreakerState.CLOSED
        self._turn = 0
        self._window: deque[bool] = deque(maxlen=WINDOW_CALLS)
        self._next_delay_seconds = first_delay_seconds
        self._probe_at = 0.0

    @property
    def state(self) -> BreakerState:
        """The state now."""
        return self._state

    def begin(self) -> int | None:
        """Ask to make a call: a number to end it with, or None when it must not be made.

        Every call that was begun must be ended, by :meth:`end` or :meth:`give_up`.
        """
        with self._lock:
            if self._state is BreakerState.OPEN and self._monotonic() >= self._probe_at:
                self._become(BreakerState.HALF_OPEN)
                return self._turn
            return self._turn if self._state is BreakerState.CLOSED else None

    def end(self, turn: int, *, is_well: bool | None) -> BreakerState | None:
        """Say how a call that was begun went; None when it came to no answer, which only fails a probe.

        Returns:
            CLOSED or OPEN when this very call has closed the breaker, or opened one that was closed; else None.
        """
        with self._lock:
            if turn != self._turn or (is_well is None and self._state is BreakerState.CLOSED):
                return None
            if self._state is BreakerState.HALF_OPEN:
                if not is_well:
                    self._open()
                    return None
                self._become(BreakerState.CLOSED)
                return BreakerState.CLOSED
            window = self._window
            window.append(bool(is_well))
            faults = window.count(False)
            if faults >= self._faults_to_open:
                self._open()
                return BreakerState.OPEN
            if not faults and len(window) == WINDOW_CALLS:
                self._next_delay_seconds = self._first_delay_seconds
            return None

    def give_up(self, turn: int) -> None:
        """End a call that says nothing about the service at all. If it was the probe, the next call is."""
        with self._lock:
            if turn == self._turn and self._state is BreakerState.HALF_OPEN:
                self._become(BreakerState.OPEN)

    def _open(self) -> None:
        self._become(BreakerState.OPEN)
        self._probe_at = self._monotonic() + self._next_delay_seconds * (1 - self._jitter() / 5)
        self._next_delay_seconds = min(2 * self._next_delay_seconds, self._max_delay_seconds)

    def _become(self, state: BreakerState) -> None:
        self._state = state
        self._turn += 1
        self._window.clear()
