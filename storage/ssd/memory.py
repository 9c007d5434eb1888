"""Payloads in memory: those used last, within a budget."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from storage.ssd.format import padded_bytes

OVERHEAD_BYTES = 1024
"""What keeping track of a payload takes beside its own memory: views, counts, its place in two maps."""
_FORGOTTEN_LIMIT = 65_536
"""More records than can go while one read is under way."""


class PayloadMemory:
    """Verified payloads by the generation of their record, the least recently used of which goes first. Thread-safe.

    A directory never gives a generation twice, and a record that is moved to another place keeps its own: so what is
    found under a generation is that record's bytes, wherever they stand by now, or whether they still do.

    Args:
        budget_bytes: how much is kept, paddings and overhead counted; 0 keeps nothing.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self._lock = threading.Lock()
        self._payloads: OrderedDict[int, memoryview] = OrderedDict()
        self._forgotten: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, generation: int) -> bool:
        return generation in self._payloads

    def get(self, generations: Sequence[int]) -> list[memoryview | None]:
        """The records' payloads, as far as they are here. That is a use."""
        with self._lock:
            found = [self._payloads.get(generation) for generation in generations]
            for generation, payload in zip(generations, found, strict=True):
                if payload is not None:
                    self._payloads.move_to_end(generation)
            return found

    def put(self, payloads: Iterable[tuple[int, memoryview]]) -> None:
        """Keep payloads, under their generations, whose checksums were verified and that nobody changes any more."""
        with self._lock:
            for generation, payload in payloads:
                size = _size_of(payload)
                if size > self.budget_bytes or generation in self._payloads or generation in self._forgotten:
                    continue
                self._payloads[generation] = payload
                self.used_bytes += size
                while self.used_bytes > self.budget_bytes:
                    _, oldest = self._payloads.popitem(last=False)
                    self.used_bytes -= _size_of(oldest)

    def forget(self, generations: Iterable[int]) -> None:
        """Let go of what records that are no more left here, and take it from no read that is still under way."""
        with self._lock:
            for generation in generations:
                self._forgotten[generation] = None
                payload = self._payloads.pop(generation, None)
                if payload is not None:
                    self.used_bytes -= _size_of(payload)
            while len(self._forgotten) > _FORGOTTEN_LIMIT:
                self._forgotten.popitem(last=False)


def _size_of(payload: memoryview) -> int:
    return padded_bytes(len(payload)) + OVERHEAD_BYTES
