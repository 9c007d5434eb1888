"""What the tiers notice, as lines of the log."""

import threading
from collections.abc import Mapping
from typing import Any

import structlog

from storage.base import Fact
from storage.clock import Clock

LINES_A_MINUTE = 30
_MINUTE_SECONDS = 60.0
_LOG = structlog.get_logger("kvshelf.storage")
_GOOD_NEWS = frozenset({"medium_recovered", "space_again", "index_repaired"})


class EventLog:
    """Writes events of tiers to the log. Thread-safe.

    Of each event at most ``LINES_A_MINUTE`` lines a minute: a failing disk must not fill another one. The first line
    of the next minute says how many were left out.

    Args:
        clock: for the minutes (monotonic).
        log: a structlog logger.
    """

    def __init__(self, clock: Clock, log: Any = _LOG) -> None:
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._minutes: dict[str, tuple[float, int]] = {}

    def write(self, tier: str, event: str, facts: Mapping[str, Fact]) -> None:
        """Write a line, unless there were too many of this event in this minute."""
        left_out = self._count(event)
        if left_out is None:
            return
        tell = self._log.info if event in _GOOD_NEWS else self._log.warning
        tell(event, tier=tier, **facts, **({"left_out": left_out} if left_out else {}))

    def _count(self, event: str) -> int | None:
        """None when the line is to be left out, else how many were left out before it."""
        now = self._clock.monotonic()
        with self._lock:
            since, lines = self._minutes.get(event, (now, 0))
            left_out = 0
            if now - since >= _MINUTE_SECONDS:
                since, lines, left_out = now, 0, max(0, lines - LINES_A_MINUTE)
            self._minutes[event] = (since, lines + 1)
            return left_out if lines < LINES_A_MINUTE else None
