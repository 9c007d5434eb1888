"""Holds on records in segments: what is held is read from where it was found, whatever the index says by then."""

import threading
from collections.abc import Callable, Sequence

from storage.base import Entry, Extent, FileHold, Loaded, Miss
from storage.ssd.format import HEADER_BYTES, PAGE_BYTES
from storage.ssd.loading import Spot
from storage.ssd.pins import Pins
from storage.ssd.reading import Found, Reader

_Load = Callable[[Sequence[Entry | Miss], Sequence[Spot]], list[Loaded | Miss]]


class SsdHold(FileHold):
    """Keeps the segments of its records from being reused.

    Args:
        found: what is held; the segment of each record is pinned once already.
        reader: reads them.
        pins: where they are pinned.
    """

    def __init__(self, found: Found, reader: Reader, pins: Pins) -> None:
        self.entries, self._spots = found
        self._reader, self._pins = reader, pins
        self._lock = threading.Lock()
        self._is_released = self._is_brought = False
        self._reads = 0
        self._let_go: list[int] = []

    def read(self, start: int, end: int) -> list[Loaded | Miss]:
        """See :meth:`Hold.read`."""
        return self._read(start, end, self._reader.load)

    def reread(self, start: int, end: int) -> list[Loaded | Miss]:
        """See :meth:`Hold.reread`."""
        return self._read(start, end, self._reader.reload)

    def _read(self, start: int, end: int, load: _Load) -> list[Loaded | Miss]:
        with self._lock:
            if self._is_released:
                raise ValueError("this hold was released")
            entries, spots = self.entries[start:end], self._spots[start:end]
            self._reads += 1
        try:
            return load(entries, spots)
        finally:
            self._unpin([], reads=-1)

    def expect(self, start: int, end: int) -> None:
        """See :meth:`Hold.expect`."""
        with self._lock:
            entries, spots = self.entries[start:end], self._spots[start:end]
        self._reader.expect(entries, spots)

    def extents(self, start: int, end: int) -> list[Extent]:
        """See :meth:`FileHold.extents`."""
        with self._lock:
            if self._is_released:
                raise ValueError("this hold was released")
            entries, spots = self.entries[start:end], self._spots[start:end]
            is_first, self._is_brought = not self._is_brought, True
        if is_first:
            self._reader.bring_into_cache(entries, spots)
        return [(segment, page * PAGE_BYTES + HEADER_BYTES) for segment, page in spots]

    def open_file(self, number: int) -> int:
        """See :meth:`FileHold.open_file`."""
        return self._reader.open_file(number)

    def keep(self, start: int, end: int) -> None:
        """See :meth:`Hold.keep`."""
        with self._lock:
            gone = _segments(self._spots[:start]) + _segments(self._spots[end:])
            self.entries, self._spots = self.entries[start:end], self._spots[start:end]
        self._unpin(gone)

    def release(self) -> None:
        """See :meth:`Hold.release`."""
        with self._lock:
            self._is_released = True
            gone, self._spots = _segments(self._spots), []
        self._unpin(gone)

    def _unpin(self, gone: list[int], reads: int = 0) -> None:
        """Let go of segments, once nobody reads any more."""
        with self._lock:
            self._reads += reads
            self._let_go += gone
            unpinned, self._let_go = ([], self._let_go) if self._reads else (self._let_go, [])
        if unpinned:
            self._pins.unpin(unpinned)


def _segments(spots: Sequence[Spot]) -> list[int]:
    return [segment for segment, _ in spots if segment]
