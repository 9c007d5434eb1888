"""How many calls of a client are under way at a time. The others wait in line, each no longer than it has time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import DeadlineError


class Places:
    """So many threads may be in at a time."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    @contextmanager
    def taken(self, deadline: Deadline) -> Iterator[None]:
        """Have a place. Raises DeadlineError when none came free in time."""
        if not self._free.acquire(timeout=deadline.remaining_seconds):
            raise no_place()
        try:
            yield
        finally:
            self._free.release()


def no_place() -> DeadlineError:
    """The time was up in the line of this client's own calls."""
    return DeadlineError("as many calls as allowed were under way until the time was up")
