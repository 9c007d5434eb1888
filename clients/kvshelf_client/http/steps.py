"""I/O in steps: what a connection does, once for threads and event loops.

Everything that talks to a socket is a generator. It does what can be done without waiting, and yields a :class:`Wait`
where it must wait, or None where it has done a lot at a stretch and others may have a turn. So nothing stands between a
socket and the caller's buffers.
"""

import math
import select
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


class Wait:
    """Until ``fd`` can be read (or written, with ``to_write``), for at most ``seconds``.

    A connection may keep one and use it again, with other ``seconds``.
    """

    __slots__ = ("_poll", "fd", "seconds", "to_write")

    def __init__(self, fd: int, *, to_write: bool, seconds: float) -> None:
        self.fd, self.to_write, self.seconds = fd, to_write, seconds
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT if to_write else select.POLLIN)

    def in_thread(self) -> bool:
        """Wait in this thread; returns whether it came true."""
        return bool(self._poll.poll(math.ceil(self.seconds * 1000)))


Steps = Generator[Wait | None, bool, T]
"""Steps to a ``T``. What is sent back to a Wait is whether it came true; False when the time was up."""


def wait(step: Wait | None) -> bool:
    """Wait in this thread."""
    return step is None or step.in_thread()
