"""How much memory the Redis server uses, asked for rarely."""

import threading

from storage.clock import Clock
from storage.dram.link import LinkDownError, RedisLink

AGE_SECONDS = 1.0
"""How long an answer is good for."""


class ServerMemory:
    """``INFO memory``, remembered for a second. While the server is away the last answer stands."""

    def __init__(self, link: RedisLink, clock: Clock) -> None:
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
            (reply,) = self._link.ask([(b"INFO", b"memory")])
        except LinkDownError:
            return
        fields = dict(line.split(b":", 1) for line in reply.splitlines() if b":" in line)
        counted = int(fields.get(b"used_memory", 0)) - int(fields.get(b"mem_not_counted_for_evict", 0))
        self._answer = (counted, int(fields.get(b"maxmemory", 0)))
        if not 0 < self._answer[1] < counted + self._wanted_bytes:
            self._wanted_bytes = 0
