"""Clients that leave a call where it is: half-sent, unread. They are told, and whoever does not listen is cut off."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from stat import S_ISSOCK
from typing import TypeVar
from urllib.parse import unquote

from service.faces.admission import MIN_BYTES_PER_SECOND
from service.faces.problems import ProblemError

_DESCRIPTORS = "/dev/fd"
T = TypeVar("T")


class Pace:
    """How long one call may still wait for its client. What the client moves earns it time, up to ``stall_seconds``."""

    def __init__(self, stall_seconds: float) -> None:
        self._stall_seconds = self._left_seconds = stall_seconds

    async def owed(self, step: Awaitable[T], what: str) -> T:
        """Wait for something that is the client's to do.

        Raises:
            ProblemError: a 408 that says ``what`` did not come any further.
        """
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            async with asyncio.timeout(self._left_seconds):
                return await step
        except TimeoutError:
            raise ProblemError(408, f"{what} took longer than {self._stall_seconds:g} s to come any further") from None
        finally:
            self._left_seconds -= clock() - started

    def moved(self, size_bytes: int) -> None:
        """The client has sent or taken so many bytes."""
        earned_seconds = size_bytes / MIN_BYTES_PER_SECOND
        self._left_seconds = min(self._stall_seconds, self._left_seconds + earned_seconds)


class PacedMessages:
    """The messages of a client, each within its :class:`Pace`."""

    def __init__(self, messages: AsyncIterator[bytes], pace: Pace) -> None:
        self._messages, self._pace = messages, pace

    def __aiter__(self) -> "PacedMessages":
        return self

    async def __anext__(self) -> bytes:
        message = await self._pace.owed(anext(self._messages), "the call's next message")
        self._pace.moved(len(message))
        return message


class Farewell:
    """Sees to it that a call which was answered ends: the client has ``seconds`` to take what is left, then ``cut``."""

    def __init__(self, seconds: float, cut: Callable[[], None]) -> None:
        self._seconds, self._cut = seconds, cut
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """All is said, but for how it ended; that waits its turn behind what the client has not read."""
        if not self._is_over:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._cut)

    def over(self) -> None:
        """The call has ended on both sides."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()


def cut_off(peer: str, local_port: int) -> None:
    """Shut the connection of a peer down, as gRPC names it (``ipv4:127.0.0.1:5000``), if it is there.

    A server of gRPC can end a call only by a message, which waits behind those that the client does not read; so the
    connection is found among this process's own by its two ends. Blocks for some milliseconds.
    """
    host, _, port = unquote(peer.partition(":")[2]).rpartition(":")
    wanted = _plain(host.strip("[]")), int(port)
    for name in os.listdir(_DESCRIPTORS):
        with suppress(OSError):  # What was listed may be closed by now.
            if S_ISSOCK(os.fstat(int(name)).st_mode):
                _shut_down(os.dup(int(name)), local_port, wanted)


def _shut_down(descriptor: int, local_port: int, wanted: tuple[str, int]) -> None:
    """Shut the socket of a descriptor down if it is that connection, and close the descriptor. Raises OSError."""
    with socket.socket(fileno=descriptor) as found:
        if found.family not in (socket.AF_INET, socket.AF_INET6):
            return
        here, there = found.getsockname(), found.getpeername()
        if here[1] == local_port and (_plain(there[0]), there[1]) == wanted:
            found.shutdown(socket.SHUT_RDWR)


def _plain(host: str) -> str:
    """An address in one form, whichever socket it was seen on."""
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
