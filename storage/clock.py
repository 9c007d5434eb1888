"""The one place where time is read. Everything else is handed a clock."""

import time
from typing import Protocol


class Clock(Protocol):
    """Time as the rest of the code sees it."""

    def now(self) -> float:
        """Wall-clock seconds since the epoch. Written to disk and compared after a restart, so it may step."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back. For leases, time budgets and latencies; means nothing after a restart."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """See :meth:`Clock.now`."""
        return time.time()

    def monotonic(self) -> float:
        """See :meth:`Clock.monotonic`."""
        return time.monotonic()


class ManualClock:
    """A clock that stands still until it is moved. For tests, simulations and the trace simulator."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._now = start
        self._monotonic = 0.0

    def now(self) -> float:
        """See :meth:`Clock.now`."""
        return self._now

    def monotonic(self) -> float:
        """See :meth:`Clock.monotonic`."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass on both clocks."""
        if seconds < 0:
            raise ValueError("time only advances; use step() for a wall clock that jumps")
        self._now += seconds
        self._monotonic += seconds

    def step(self, seconds: float) -> None:
        """Let the wall clock jump by ``seconds``, forward or back, while no time passes."""
        self._now += seconds
