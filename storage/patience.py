"""How long a piece of work may wait for a tier in trouble, over all of its calls together.

A face gives each request a :class:`Patience`; a remote tier asks for the one in force and keeps to it. What is waited
for counts, not what is moved: a tier gives back the time that bytes take at a sound rate.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Patience:
    """Seconds that are left to wait. Threads may share one; it is a bound on waste, not an account."""

    def __init__(self, seconds: float) -> None:
        self.left_seconds = seconds


_in_force: ContextVar[Patience | None] = ContextVar("patience", default=None)


def patience_in_force() -> Patience | None:
    """The patience of the work that this thread or task does, if it has any."""
    return _in_force.get()


def begin_work(patience: Patience) -> None:
    """From here on this task has that patience, and so has what it hands to :func:`waiting_with`."""
    _in_force.set(patience)


@contextmanager
def waiting_with(patience: Patience) -> Iterator[None]:
    """Have that patience within."""
    before = _in_force.set(patience)
    try:
        yield
    finally:
        _in_force.reset(before)
