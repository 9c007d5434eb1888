"""I/O in steps: what a connection does, once for threads and event loops.

Everything that talks to a socket is a generator. It does what can be done without waiting, and yields a :class:`Wait`
where it must wait, or None where it has done a lot at a stretch and others may have a turn. So nothing stands between a
socket and the caller's buffers.
"""

import math
import select
from collections.abc import Generator
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Wait(NamedTuple):
    """Until ``fd`` can be read (or written, with ``to_write``), for at most ``seconds``."""

    fd: int
    to_write: bool
    seconds: float


Steps = Generator[Wait | None, bool, T]
"""Steps to a ``T``. What is sent back to a Wait is whether it came true; False when the time was up."""


def wait(step: Wait | None) -> bool:
    """Wait in this thread."""
    if step is None:
        return True
    poll = select.poll()
    poll.register(step.fd, select.POLLOUT if step.to_write else select.POLLIN)
    return bool(poll.poll(math.ceil(step.seconds * 1000)))
