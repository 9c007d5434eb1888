"""How much memory the Redis server uses, or all of a cluster's, asked for rarely."""

import threading

from storage.clock import Clock
from storage.dram.link import AWAY, Link, LinkDownError

AGE_SECONDS = 1.0
"""How long an answer is good for."""


class ServerMemory:
    """``INFO memory``, remembered for a second. While the server is away the last answer stands."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_at: float | None = None
        self._answer = (0, 0)
        self._wanted_bytes = 0

    def read(self) -> tuple[int, int]:
        """Bytes that count against ``maxmemory``, and ``maxmemory`` (0: no limit); both 0 before the first answer.

        One thread asks, the others take what is known meanwhile.
        """
        if self._lock.acquire(blocking=False):
            try:
                self._refresh()
            finally:
                self._lock.release()
        return self._answer

    @property
    def is_full(self) -> bool:
        """Whether Redis had no memory for a record, and has none for its like since."""
        return self._wanted_bytes > 0

    def refused(self, nbytes: int) -> None:
        """Redis had no memory for a value of so many bytes."""
        self._wanted_bytes = nbytes

    def look_again(self) -> None:
        """See whether a server that was full has memory again."""
        if self.is_full:
            self.read()

    def _refresh(self) -> None:
        now = self._clock.monotonic()
        if self._asked_at is not None and now - self._asked_at < AGE_SECONDS:
            return
        self._asked_at = now
        try:
            replies = self._link.ask_all((b"INFO", b"memory"))
        except LinkDownError:
            return
        each = [_memory_of(reply) for reply in replies if reply is not AWAY]
        counted = sum(used for used, _ in each)
        self._answer = (counted, sum(most for _, most in each))
        if not 0 < self._answer[1] < counted + self._wanted_bytes:
            self._wanted_bytes = 0


def _memory_of(reply: bytes) -> tuple[int, int]:
    """What one server's ``INFO memory`` says: bytes that count against ``maxmemory``, and that."""
    fields = dict(line.split(b":", 1) for line in reply.splitlines() if b":" in line)
    counted = int(fields.get(b"used_memory", 0)) - int(fields.get(b"mem_not_counted_for_evict", 0))
    return counted, int(fields.get(b"maxmemory", 0))
