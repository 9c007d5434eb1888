"""How much is let in at one time: requests, the bytes of their bodies, connections; and how much of it for one source.

Whatever is too much is refused at once, with a time to come again. Nothing waits here but bytes, and those not for
long. All of it belongs to the event loop.
"""

import asyncio
from types import TracebackType
from typing import Final

from service.faces.problems import RETRY_SECONDS, ProblemError
from service.metrics import Metrics
from service.settings.limits import LimitSettings

MIN_BYTES_PER_SECOND: Final = 1024
"""A body that comes, or an answer that is taken, more slowly stands still."""
ROOM_SECONDS: Final = 2.0
"""How long a body waits for others to be done with. Batches of stores are written in a fraction of it."""


def source_of(tenant: str | None, address: str) -> str:
    """Who shares with others: a tenant, or where there are none, an address."""
    return address if tenant is None else f"tenant {tenant}"


class Allowance:
    """So much of something for all, and of it at most a share for one source."""

    def __init__(self, most: int, share: float) -> None:
        self._most = most
        self._most_of_one = max(1, int(most * share))
        self._taken = 0
        self._by_source: dict[str, int] = {}

    def lacks(self, source: str, amount: int = 1) -> int | None:
        """None where there is room for ``amount`` more; 429 where the source has its share, 503 where all is taken."""
        if self._by_source.get(source, 0) + amount > self._most_of_one:
            return 429
        return 503 if self._taken + amount > self._most else None

    def room(self, source: str) -> int:
        """How much more the source may take."""
        return min(self._most - self._taken, self._most_of_one - self._by_source.get(source, 0))

    def is_scarce(self, source: str) -> bool:
        """Whether more than half is taken, of all or of the source's share."""
        return 2 * self._taken > self._most or 2 * self._by_source.get(source, 0) > self._most_of_one

    def take(self, source: str, amount: int = 1) -> None:
        """Take what :meth:`lacks` says there is room for."""
        self._taken += amount
        self._by_source[source] = self._by_source.get(source, 0) + amount

    def give(self, source: str, amount: int = 1) -> None:
        """Give back what was taken. A source that has nothing is forgotten."""
        self._taken -= amount
        self._by_source[source] -= amount
        if not self._by_source[source]:
            del self._by_source[source]


class Admission:
    """What is under way in all faces together, within the limits of the settings."""

    def __init__(self, limits: LimitSettings, metrics: Metrics) -> None:
        self.connections = Allowance(limits.max_connections, limits.max_source_share)
        self.metrics = metrics
        self._requests = Allowance(limits.max_requests, limits.max_source_share)
        self._bytes = Allowance(limits.max_body_bytes, limits.max_source_share)
        self._room = asyncio.Event()

    def admit(self, source: str) -> "Admitted":
        """Let a request of a source in; it is under way until it is closed.

        Raises:
            ProblemError: a 429 where the source has its share of what may be under way, a 503 where that is all taken.
        """
        status = self._requests.lacks(source)
        if status is not None:
            self.metrics.refused.labels("share" if status == 429 else "busy").inc()
            whose = "from where this one came" if status == 429 else "in all"
            raise ProblemError(status, f"too many requests are under way {whose}; come again in {RETRY_SECONDS} s")
        self._requests.take(source)
        return Admitted(self, source)

    def leave(self, source: str, size_bytes: int) -> None:
        """A request ends that held so many bytes."""
        self._requests.give(source)
        self.release(source, size_bytes)

    def is_scarce(self, source: str) -> bool:
        """Whether bytes are scarce enough that a source should not keep any for later."""
        return self._bytes.is_scarce(source)

    async def hold(self, source: str, size_bytes: int) -> None:
        """Count bytes of a body; wait a little for others to be done with, where there is no room.

        Raises:
            ProblemError: a 429 or 503, as :meth:`admit`.
        """
        try:
            async with asyncio.timeout(ROOM_SECONDS):
                while self._bytes.lacks(source, size_bytes) is not None:
                    await self._room.wait()
        except TimeoutError:
            self.metrics.refused.labels("bytes").inc()
            detail = f"too many bytes of bodies are under way; come again in {RETRY_SECONDS} s"
            raise ProblemError(self._bytes.lacks(source, size_bytes) or 503, detail) from None
        self._bytes.take(source, size_bytes)

    async def hold_some(self, source: str, most_bytes: int) -> int:
        """Count bytes that are about to be read, as many as there is room for, and return how many. As :meth:`hold`."""
        size_bytes = max(1, min(most_bytes, self._bytes.room(source)))
        await self.hold(source, size_bytes)
        return size_bytes

    def release(self, source: str, size_bytes: int) -> None:
        """Bytes of a body are done with."""
        if size_bytes:
            self._bytes.give(source, size_bytes)
            self._room.set()
            self._room = asyncio.Event()


class Admitted:
    """A request that was let in, and the bytes of its body that are still in memory."""

    def __init__(self, admission: Admission, source: str) -> None:
        self._admission = admission
        self._source = source
        self._bytes = 0

    @property
    def should_hurry(self) -> bool:
        """Whether it should be done with what it holds before it takes more."""
        return self._admission.is_scarce(self._source)

    async def hold(self, size_bytes: int) -> None:
        """Count bytes that arrived; see :meth:`Admission.hold`."""
        await self._admission.hold(self._source, size_bytes)
        self._bytes += size_bytes

    async def hold_some(self, most_bytes: int) -> int:
        """Count bytes that are about to be read; see :meth:`Admission.hold_some`. Give back what did not come."""
        size_bytes = await self._admission.hold_some(self._source, most_bytes)
        self._bytes += size_bytes
        return size_bytes

    def release(self, size_bytes: int) -> None:
        """Bytes that arrived are done with; those that are not by the end are then."""
        self._bytes -= size_bytes
        self._admission.release(self._source, size_bytes)

    def __enter__(self) -> "Admitted":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admission.leave(self._source, self._bytes)
