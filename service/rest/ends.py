"""The two ends of a connection that threads move bulk through, and what the client is waited for there."""

import asyncio
import fcntl
import select
import socket
import struct
import termios
from collections.abc import Callable, Sequence

PATIENCE_MS = 10
"""How long a thread waits for a peer that is about to take more."""
BUFFERS_PER_CALL = 512
WORTHWHILE_BYTES = 256 << 10
"""A thread that waits for a body is woken when so much has come, or the rest of it."""
_COUNT = struct.Struct("i")


class Inlet:
    """The rest of a body that is still to be read, from one thread at a time.

    Args:
        descriptor: the socket's own; closed by :meth:`close`.
        arrived: what the server has read of the body already.
        left_bytes: how much of the body is not read yet.
    """

    def __init__(self, descriptor: int, arrived: bytes, left_bytes: int) -> None:
        self.arrived = arrived
        self.left_bytes = left_bytes
        self._moved_bytes = 0
        self._end = _End(descriptor, select.POLLIN)
        self._ask_for_no_less(min(WORTHWHILE_BYTES, left_bytes))

    def _ask_for_no_less(self, least_bytes: int) -> None:
        """Be woken for no fewer bytes: each small piece would cost as much as a large one."""
        self._least_bytes = least_bytes
        self._end.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, max(1, least_bytes))

    def receive(self, room: Sequence[memoryview], most_bytes: int) -> int:
        """Read what has come or comes in a moment, never beyond the body; returns how many bytes, 0 when none came.

        Raises:
            OSError: the peer is gone.
        """
        left, within = min(most_bytes, self.left_bytes), list[memoryview]()
        for buffer in room:
            within.append(buffer[:left])
            left -= len(within[-1])
        count = self._end.attempt(_receive, within)
        self.left_bytes -= count
        self._moved_bytes += count
        if count and self.left_bytes < self._least_bytes:
            self._ask_for_no_less(self.left_bytes)
        return count

    async def readable(self) -> None:
        """Wait until more has come, or the peer is gone. Raises OSError where it was given up."""
        await self._end.ready()

    @property
    def awaited_bytes(self) -> int | None:
        """How much has come so far, while the client is waited for; None while it is not."""
        return self._moved_bytes + self._end.queued(termios.FIONREAD) if self._end.is_waiting else None

    def give_up(self) -> None:
        """End a wait for the client. What came is dropped: left unread, it would cost the client the answer."""
        if self._end.queued(termios.FIONREAD):
            self._end.socket.recv(WORTHWHILE_BYTES)
        self._end.give_up()

    def close(self) -> None:
        """Let go of the descriptor. The connection stays."""
        self._ask_for_no_less(1)
        self._end.close()


class Outlet:
    """A socket to be written to, from one thread at a time.

    Args:
        descriptor: the socket's own; closed by :meth:`close`.
    """

    def __init__(self, descriptor: int) -> None:
        self._moved_bytes = 0
        self._end = _End(descriptor, select.POLLOUT)

    def send(self, buffers: Sequence[memoryview], patience_ms: int = PATIENCE_MS) -> int:
        """Write what the peer takes now or within that time; returns how many bytes, 0 when it takes none.

        Raises:
            OSError: the peer is gone.
        """
        count = self._end.attempt(socket.socket.sendmsg, buffers[:BUFFERS_PER_CALL], patience_ms)
        self._moved_bytes += count
        return count

    async def writable(self) -> None:
        """Wait until the peer takes more, or is gone. Raises OSError where it was given up."""
        await self._end.ready()

    @property
    def awaited_bytes(self) -> int | None:
        """How much the client has taken so far, while it is waited for; None while it is not."""
        return self._moved_bytes - self._end.queued(termios.TIOCOUTQ) if self._end.is_waiting else None

    def give_up(self) -> None:
        """End a wait for the client."""
        self._end.give_up()

    def close(self) -> None:
        """Let go of the descriptor. The connection stays."""
        self._end.close()


class _End:
    """A descriptor of a connection's socket, and waiting for one kind of event on it."""

    def __init__(self, descriptor: int, event: int) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self._event = event
        self._poll = select.poll()
        self._poll.register(descriptor, event)
        self._happened: asyncio.Future[None] | None = None

    def attempt(
        self,
        move: Callable[[socket.socket, Sequence[memoryview]], int],
        buffers: Sequence[memoryview],
        patience_ms: int = PATIENCE_MS,
    ) -> int:
        """Move bytes now or within that time; 0 when that cannot be done."""
        try:
            return move(self.socket, buffers)
        except BlockingIOError:
            if not patience_ms or not self._poll.poll(patience_ms):
                return 0
        try:
            return move(self.socket, buffers)
        except BlockingIOError:
            return 0

    @property
    def is_waiting(self) -> bool:
        """Whether the event is waited for."""
        return self._happened is not None

    async def ready(self) -> None:
        """Wait for the event. Raises OSError when it was given up."""
        loop, descriptor = asyncio.get_running_loop(), self.socket.fileno()
        self._happened = happened = loop.create_future()
        add, remove = (
            (loop.add_reader, loop.remove_reader)
            if self._event == select.POLLIN
            else (loop.add_writer, loop.remove_writer)
        )
        add(descriptor, _settle, happened)
        try:
            await happened
        finally:
            remove(descriptor)
            self._happened = None

    def give_up(self) -> None:
        """Let a wait end with an error."""
        if self._happened is not None and not self._happened.done():
            self._happened.set_exception(TimeoutError("the client was waited for too long"))

    def queued(self, request: int) -> int:
        """How many bytes are in one of the socket's queues."""
        return int(_COUNT.unpack(fcntl.ioctl(self.socket, request, bytes(_COUNT.size)))[0])

    def close(self) -> None:
        """Let go of the descriptor."""
        self.socket.close()


def _receive(sock: socket.socket, room: Sequence[memoryview]) -> int:
    count = sock.recvmsg_into(room)[0]
    if not count:
        raise ConnectionResetError("the client hung up in the middle of a body")
    return count


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
