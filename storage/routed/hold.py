"""A hold on records of several shelves."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from storage.base import Entry, Hold, Loaded, Miss


class RoutedHold(Hold):
    """Holds of several shelves as one.

    Args:
        parts: each shelf's hold, and where in the call its entries stand, in ascending order.
        count: how many entries there are in all.
    """

    def __init__(self, parts: Sequence[tuple[Hold, Sequence[int]]], count: int) -> None:
        placed = {at: entry for hold, positions in parts for at, entry in zip(positions, hold.entries, strict=True)}
        self.entries: list[Entry | Miss] = [placed[at] for at in range(count)]
        self._parts = [(hold, list(positions)) for hold, positions in parts]

    def read(self, start: int, end: int) -> list[Loaded | Miss]:
        """See :meth:`Hold.read`."""
        return self._gathered(start, end, lambda hold, first, last: hold.read(first, last))

    def reread(self, start: int, end: int) -> list[Loaded | Miss]:
        """See :meth:`Hold.reread`."""
        return self._gathered(start, end, lambda hold, first, last: hold.reread(first, last))

    def _gathered(
        self, start: int, end: int, read: Callable[[Hold, int, int], list[Loaded | Miss]]
    ) -> list[Loaded | Miss]:
        placed: dict[int, Loaded | Miss] = {}
        wanted = range(*slice(start, end).indices(len(self.entries)))
        for hold, positions in self._parts:
            first, last = bisect_left(positions, wanted.start), bisect_left(positions, wanted.stop)
            placed.update(zip(positions[first:last], read(hold, first, last), strict=True))
        return [placed[at] for at in wanted]

    def keep(self, start: int, end: int) -> None:
        """See :meth:`Hold.keep`."""
        kept = range(*slice(start, end).indices(len(self.entries)))
        self.entries = self.entries[kept.start : kept.stop]
        narrowed = []
        for hold, positions in self._parts:
            first, last = bisect_left(positions, kept.start), bisect_left(positions, kept.stop)
            hold.keep(first, last)
            narrowed.append((hold, [at - kept.start for at in positions[first:last]]))
        self._parts = narrowed

    def release(self) -> None:
        """See :meth:`Hold.release`."""
        for hold, _ in self._parts:
            hold.release()
