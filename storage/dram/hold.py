"""Holds of the DRAM pool: best effort, since Redis keeps nothing for anybody."""

from collections.abc import Callable, Sequence

from storage.base import Entry, Hold, Loaded, Miss, OnArrival

_Load = Callable[[Sequence[Entry]], list[Loaded | Miss]]
_Use = Callable[[Sequence[Entry], OnArrival | None], list[Loaded | Miss]]


class PoolHold(Hold):
    """Remembers what was there, and reads what is there by then.

    Args:
        entries: the answers of the look-up.
        load: reads records, each at least as good as its entry and of the same length, or a miss.
        use: reads them likewise, and renews their lives.
    """

    def __init__(self, entries: list[Entry | Miss], load: _Load, use: _Use) -> None:
        self.entries = entries
        self._load, self._use = load, use
        self._is_released = False

    def read(self, start: int, end: int) -> list[Loaded | Miss]:
        """See :meth:`Hold.read`."""
        return self._read(start, end, self._load)

    def use(self, start: int, end: int, on_arrival: OnArrival | None) -> list[Loaded | Miss]:
        """See :meth:`Tier.use`."""
        return self._read(start, end, lambda entries: self._use(entries, on_arrival))

    def _read(self, start: int, end: int, load: _Load) -> list[Loaded | Miss]:
        if self._is_released:
            raise ValueError("this hold was released")
        asked = self.entries[start:end]
        loaded = iter(load([one for one in asked if isinstance(one, Entry)]))
        return [next(loaded) if isinstance(one, Entry) else one for one in asked]

    def keep(self, start: int, end: int) -> None:
        """See :meth:`Hold.keep`."""
        self.entries = self.entries[start:end]

    def release(self) -> None:
        """See :meth:`Hold.release`."""
        self._is_released = True
