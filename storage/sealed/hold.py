"""Holds on sealed records."""

from collections.abc import Callable, Sequence

from storage.base import Entry, Hold, Loaded, Miss


class SealedHold(Hold):
    """A hold of the tier below whose records are opened as they are read.

    Args:
        hold: that of the tier below.
        outer: what is said of its entries.
        unseal: opens a record that was read.
    """

    def __init__(
        self,
        hold: Hold,
        outer: Callable[[Sequence[Entry | Miss]], list[Entry | Miss]],
        unseal: Callable[[Loaded | Miss], Loaded | Miss],
    ) -> None:
        self._hold = hold
        self._unseal = unseal
        self.entries = outer(hold.entries)

    def read(self, start: int, end: int) -> list[Loaded | Miss]:
        """See :meth:`Hold.read`."""
        return self._opened(start, end, self._hold.read(start, end))

    def reread(self, start: int, end: int) -> list[Loaded | Miss]:
        """See :meth:`Hold.reread`."""
        return self._opened(start, end, self._hold.reread(start, end))

    def expect(self, start: int, end: int) -> None:
        """See :meth:`Hold.expect`."""
        self._hold.expect(start, end)

    def keep(self, start: int, end: int) -> None:
        """See :meth:`Hold.keep`."""
        self._hold.keep(start, end)
        self.entries = self.entries[start:end]

    def release(self) -> None:
        """See :meth:`Hold.release`."""
        self._hold.release()

    def _opened(self, start: int, end: int, found: list[Loaded | Miss]) -> list[Loaded | Miss]:
        asked = self.entries[start:end]
        return [
            entry if isinstance(entry, Miss) else self._unseal(one) for entry, one in zip(asked, found, strict=True)
        ]
