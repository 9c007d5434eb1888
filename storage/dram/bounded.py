"""Connections whose every conversation has an end, however the bytes trickle."""

import socket
import threading
from typing import Any

from redis.connection import AbstractConnection

from storage.clock import Clock
from storage.patience import patience_in_force

SOUND_BYTES_PER_SECOND = 100e6
"""What is moved at this rate or faster counts as no wait: a network of 1 Gbit/s."""


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
        seconds = nbytes / SOUND_BYTES_PER_SECOND
        self._began += seconds
        self._until += seconds


class BoundedSocket:
    """A socket that waits as long as its thread may; everything else is the socket's own."""

    def __init__(self, sock: socket.socket, waiting: Waiting) -> None:
        self._sock = sock
        self._waiting = waiting

    def recv_into(self, buffer: Any, *arguments: int) -> int:
        """See :meth:`socket.socket.recv_into`."""
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
