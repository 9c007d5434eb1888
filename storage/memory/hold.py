"""Holds of the in-process pool."""

import threading
from collections.abc import Callable, Sequence

from storage.base import Entry, Hold, Loaded, Miss
from storage.memory.slots import Slot


class MemoryHold(Hold):
    """A hold on slots: a replaced or deleted record's payload stays with its slot.

    Args:
        found: one a requested id, the slots pinned already.
        load: reads and verifies a slot as the entry that was held.
        unpin: lets go of slots.
    """

    def __init__(
        self,
        found: Sequence[Slot | Miss],
        load: Callable[[Slot, Entry], Loaded | Miss],
        unpin: Callable[[Sequence[Slot]], None],
    ) -> None:
        self.entries = [slot.entry if isinstance(slot, Slot) else slot for slot in found]
        self._held = [(slot, slot.entry) if isinstance(slot, Slot) else slot for slot in found]
        self._load = load
        self._unpin = unpin
        self._lock = threading.Lock()
        self._is_released = False

    def read(self, start: int, end: int) -> list[Loaded | Miss]:
        """See :meth:`Hold.read`."""
        with self._lock:
            if self._is_released:
                raise ValueError("this hold was released")
            held = self._held[start:end]
        return [one if isinstance(one, Miss) else self._load(*one) for one in held]

    def keep(self, start: int, end: int) -> None:
        """See :meth:`Hold.keep`."""
        with self._lock:
            gone = self._held[:start] + self._held[end:]
            self._held, self.entries = self._held[start:end], self.entries[start:end]
        self._unpin([one[0] for one in gone if not isinstance(one, Miss)])

    def release(self) -> None:
        """See :meth:`Hold.release`."""
        with self._lock:
            self._is_released = True
            gone, self._held = self._held, []
        self._unpin([one[0] for one in gone if not isinstance(one, Miss)])
