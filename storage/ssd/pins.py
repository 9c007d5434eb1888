"""Which segments are held by readers, and the handshake that keeps a segment from being reused under one."""

import threading
from collections import Counter
from collections.abc import Iterable


class Pins:
    """Counts the holds on segments. Thread-safe.

    A reader asks the index, then pins what it found. In between a segment may be freed and claimed for new records. So
    it takes :attr:`claims` before it asks and :meth:`pin` refuses when a segment was claimed since: ask again. The
    index no longer names a free segment, so a reader that asks after the claim cannot find it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[int] = Counter()
        self.claims = 0
        """How many segments were ever claimed."""

    def pin(self, numbers: Iterable[int], claims_before: int) -> bool:
        """Hold segments (the same number counts each time); False when some segment was claimed meanwhile."""
        with self._lock:
            if self.claims != claims_before:
                return False
            self._counts.update(numbers)
            return True

    def unpin(self, numbers: Iterable[int]) -> None:
        """Let go of segments, once for each number."""
        with self._lock:
            for number, count in Counter(numbers).items():
                self._counts[number] -= count
                if self._counts[number] <= 0:
                    del self._counts[number]

    def claim(self, number: int) -> bool:
        """Take a free segment for reuse or removal; False when a reader still holds it."""
        with self._lock:
            if self._counts[number]:
                return False
            self._counts.pop(number, None)
            self.claims += 1
            return True

    def is_pinned(self, number: int) -> bool:
        """Whether a reader holds the segment at this moment."""
        return self._counts.get(number, 0) > 0

    def pinned(self) -> list[int]:
        """The segments that readers hold."""
        with self._lock:
            return list(self._counts)
