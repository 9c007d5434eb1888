"""Let steps that concern the same record come one after the other, without a lock for each record there is."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

STRIPES = 256


class Turns:
    """Thread-safe. Two keys may share a stripe by chance; then one waits for the other without need."""

    def __init__(self) -> None:
        self._locks = [threading.Lock() for _ in range(STRIPES)]

    @contextmanager
    def of(self, keys: Iterable[bytes]) -> Iterator[None]:
        """Nobody else has the turn of any of the keys meanwhile. Never take a second turn within one."""
        # One order for all, so that nobody waits in a ring.
        stripes = sorted({hash(key) % STRIPES for key in keys})
        with ExitStack() as taken:
            for stripe in stripes:
                taken.enter_context(self._locks[stripe])
            yield
