"""Uses of records that are not written to the index yet. Lookups see them; the next upkeep or write puts them there."""

import threading
from collections.abc import Iterable
from itertools import islice


class Touches:
    """The last use of records by id bytes, in memory, bounded. Thread-safe.

    Args:
        limit: most touches kept. Past it the oldest is forgotten: its record then ends its life earlier.
        flush_at: as many should be written to the index by the next writer.
    """

    def __init__(self, limit: int, flush_at: int) -> None:
        self._limit, self._flush_at = limit, flush_at
        self._lock = threading.Lock()
        self.times: dict[bytes, float] = {}
        """The last use, in seconds. Only to be read."""
        self.flushes = 0
        """How often touches went from here to the index: a lookup that spans one may have missed them in both."""

    def add(self, ids: Iterable[bytes], now: float) -> None:
        """Note that records are used at this moment."""
        with self._lock:
            for id_bytes in ids:
                self.times[id_bytes] = now
            for id_bytes in list(islice(self.times, max(0, len(self.times) - self._limit))):
                del self.times[id_bytes]

    def is_due(self) -> bool:
        """Whether there are so many that the next writer should write them."""
        return len(self.times) >= self._flush_at

    def oldest(self, count: int) -> list[tuple[bytes, float]]:
        """Up to ``count`` touches, sorted by id. They stay until :meth:`written`."""
        with self._lock:
            return sorted(islice(self.times.items(), count))

    def written(self, touches: Iterable[tuple[bytes, float]]) -> None:
        """Touches are in the index now. Those renewed in the meantime stay."""
        with self._lock:
            self.flushes += 1
            for id_bytes, used_at in touches:
                if self.times.get(id_bytes) == used_at:
                    del self.times[id_bytes]
