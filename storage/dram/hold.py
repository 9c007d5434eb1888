"""Holds of the DRAM pool: best effort, since Redis keeps nothing for anybody."""

from collections.abc import Callable, Sequence

from storage.base import Entry, Hold, Loaded, Miss


class PoolHold(Hold):
    """Remembers what was there, and reads what is there by then.

    Args:
        entries: the answers of the look-up.
        load: reads records, each at least as good as its entry and of the same length, or a miss.
    """

    def __init__(self, entries: list[Entry | Miss], load: Callable[[Sequence[Entry]], list[Loaded | Miss]]) -> None:
        self.entries = entries
        self._load = load
        self._is_released = False

    def read(self, start: int, end: int) -> list[Loaded | Miss]:
        """See :meth:`Hold.read`."""
        if self._is_released:
            raise ValueError("this hold was released")
        asked = self.entries[start:end]
        loaded = iter(self._load([one for one in asked if isinstance(one, Entry)]))
        return [next(loaded) if isinstance(one, Entry) else one for one in asked]

    def keep(self, start: int, end: int) -> None:
        """See :meth:`Hold.keep`."""
        self.entries = self.entries[start:end]

    def release(self) -> None:
        """See :meth:`Hold.release`."""
        self._is_released = True
