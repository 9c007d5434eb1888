"""Connections whose every conversation has an end, however the bytes trickle."""

import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from redis.connection import AbstractConnection

from storage.clock import Clock
from storage.patience import patience_in_force

SOUND_BYTES_PER_SECOND = 100e6
"""What is moved at this rate or faster counts as no wait: a network of 1 Gbit/s."""


OnBytes = Callable[[memoryview, int], None]
"""Told of a long reply while it comes: where all of it will be, and how many bytes of it are there."""
TOLD_BYTES = 128 << 10
"""How much more has come when that is told again: to pass on small pieces is to wake who takes them too often."""

_FIRST_BYTES = 4096
_LENGTH_BYTES = 32
"""More than the length of a bulk string takes, less than a value that is worth it."""
_MOST_BYTES = 512 << 20
"""The longest bulk string there is."""


class Waiting(threading.local):
    """When the conversation of this thread must have come to its end, on the monotonic clock.

    Args:
        clock: monotonic.
        timeout_seconds: longest wait of one round, bytes at a sound rate not counted.
    """

    def __init__(self, clock: Clock, timeout_seconds: float) -> None:
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._began = self._until = 0.0

    def begin(self) -> None:
        """A round begins. Raises TimeoutError when the work has no patience left."""
        patience = patience_in_force()
        seconds = self._timeout_seconds if patience is None else min(self._timeout_seconds, patience.left_seconds)
        if seconds <= 0:
            raise TimeoutError("the time of this request is used up")
        self._began = self._clock.monotonic()
        self._until = self._began + seconds

    def end(self) -> None:
        """The round is over, well or not: take what it took from the work's patience."""
        patience = patience_in_force()
        if patience is not None:
            patience.left_seconds -= self._clock.monotonic() - self._began

    def left(self, nbytes: int = 0) -> float:
        """Seconds that may still be waited for something of ``nbytes`` bytes; raises TimeoutError when it is none."""
        seconds = self._until + nbytes / SOUND_BYTES_PER_SECOND - self._clock.monotonic()
        if seconds <= 0:
            raise TimeoutError("no answer in time")
        return seconds

    def moved(self, nbytes: int) -> None:
        """So many bytes went or came: their time does not count."""
        self._add(nbytes / SOUND_BYTES_PER_SECOND)

    def meanwhile(self, call: Callable[[], None]) -> None:
        """Do something in the middle of a round. The server is not waited for during it: its time does not count."""
        before = self._clock.monotonic()
        call()
        self._add(self._clock.monotonic() - before)

    def _add(self, seconds: float) -> None:
        self._began += seconds
        self._until += seconds


class BoundedSocket:
    """A socket that waits as long as its thread may; everything else is the socket's own.

    Long replies need not go through a parser, which copies them twice: see :meth:`read_bulk`.
    """

    def __init__(self, sock: socket.socket, waiting: Waiting) -> None:
        self._sock = sock
        self._waiting = waiting
        self._ahead = memoryview(b"")

    def read_bulk(self, on_bytes: OnBytes | None = None) -> bytearray | None:
        """A RESP bulk string, received where it stays. None: something else is next, for the parser to read."""
        first = memoryview(bytearray(_FIRST_BYTES))
        count = self.recv_into(first)
        line, end, _ = bytes(first[:_LENGTH_BYTES]).partition(b"\r\n")
        self._ahead = first[:count]
        is_bulk = line.startswith(b"$") and line[1:].isdigit() and int(line[1:]) <= _MOST_BYTES
        if not end or count < _LENGTH_BYTES or not is_bulk:
            return None
        self._ahead = self._ahead[len(line) + len(end) :]
        value = bytearray(int(line[1:]))
        self._fill(memoryview(value), on_bytes)
        self._fill(memoryview(bytearray(len(end))), None)
        return value

    def _fill(self, buffer: memoryview, on_bytes: OnBytes | None) -> None:
        filled, due = 0, TOLD_BYTES
        while filled < len(buffer):
            count = self.recv_into(buffer[filled:])
            if not count:
                raise ConnectionError("the connection broke in the middle of a reply")
            filled += count
            if on_bytes is not None and filled >= min(due, len(buffer)):
                due = filled + TOLD_BYTES
                self._waiting.meanwhile(partial(on_bytes, buffer, filled))

    def recv_into(self, buffer: Any, *arguments: int) -> int:
        """See :meth:`socket.socket.recv_into`."""
        if self._ahead:
            target = memoryview(buffer).cast("B")
            count = min(len(target), len(self._ahead))
            target[:count], self._ahead = self._ahead[:count], self._ahead[count:]
            return count
        self._sock.settimeout(self._waiting.left())
        count = self._sock.recv_into(buffer, *arguments)
        self._waiting.moved(count)
        return count

    def sendall(self, data: Any) -> None:
        """See :meth:`socket.socket.sendall`."""
        nbytes = memoryview(data).nbytes
        self._sock.settimeout(self._waiting.left(nbytes))
        self._sock.sendall(data)
        self._waiting.moved(nbytes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def bounded(kind: type[AbstractConnection], waiting: Waiting) -> type[AbstractConnection]:
    """That kind of connection, whose handshakes and conversations keep to ``waiting``."""

    class Bounded(kind):  # type: ignore[misc, valid-type]
        def _connect(self) -> BoundedSocket:
            return BoundedSocket(super()._connect(), waiting)

    return Bounded
