"""Memory for records as they stand on the medium: header, payload, padding, at page boundaries.

Such memory the disk can read and write itself, past the page cache, without a copy. It is used again and again, because
the system clears fresh memory before it gives it away: what is let go of anywhere (the last ``memoryview`` of it dies)
comes back here by itself, and never while anybody can still see it.
"""

import ctypes
import functools
import mmap
import threading
import weakref
from collections import deque

from storage.base import Payload
from storage.ssd.format import HEADER_BYTES, padded_bytes

SLAB_BYTES = 4 << 20
SPARE_BYTES = 4 << 20
"""Memory that is kept beyond what was needed lately."""
MOST_SPARE_BYTES = 32 << 20
"""Memory that nobody uses is no more than this, however much was needed, but for the slabs that are used in part."""
_HUGE_PAGE_BYTES = 2 << 20
_HUGE_FROM_BYTES = 32 << 10
"""Smaller records are not bulk: they would take 2 MiB for the first of a size, and gain nothing."""


class _Image(ctypes.Array):  # type: ignore[type-arg]
    """The memory of one record, for as long as anybody has a view of it."""

    _type_ = ctypes.c_ubyte
    _length_ = 0
    length_bytes: int
    """Of the payload."""


class _Slab:
    """Memory for a few images of one size."""

    def __init__(self, size_bytes: int) -> None:
        count = max(1, SLAB_BYTES // size_bytes)
        room_bytes = -(-count * size_bytes // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
        self.memory = mmap.mmap(-1, room_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if size_bytes >= _HUGE_FROM_BYTES:
            self.memory.madvise(mmap.MADV_HUGEPAGE)
        self.size_bytes, self.count = size_bytes, count
        self.free = [number * size_bytes for number in range(count)]


@functools.lru_cache(maxsize=256)
def _kind(length_bytes: int) -> type[_Image]:
    shape = {"_type_": ctypes.c_ubyte, "_length_": padded_bytes(length_bytes), "length_bytes": length_bytes}
    return type("_Image", (_Image,), shape)


class _Lent(weakref.ref):  # type: ignore[type-arg]
    """An image that somebody has, and where its memory belongs."""

    __slots__ = ("offset", "slab")
    slab: _Slab
    offset: int


class Images:
    """Lends memory for records. Thread-safe.

    Memory that comes back stays here until :meth:`give_up_idle` finds that it was not needed for a while: stores and
    fetches come in bursts, and what was given up between two of them would be cleared anew for each.

    Args:
        spare_bytes: how much is kept beyond what was needed.
    """

    def __init__(self, spare_bytes: int = SPARE_BYTES) -> None:
        self._spare_bytes = spare_bytes
        self._lock = threading.Lock()
        self._roomy: dict[int, list[_Slab]] = {}
        self._lent: dict[int, _Lent] = {}
        # A view may die anywhere, inside this class too: it only leaves a note here.
        self._returned: deque[_Lent] = deque()
        self._free_bytes = 0
        self._idle_bytes = 0
        """How much was free at every moment since the last look."""
        self._too_much_bytes = MOST_SPARE_BYTES
        self.held_bytes = 0
        """All memory that is taken from the system at the moment, in use or spare."""

    def take(self, length_bytes: int) -> memoryview:
        """Memory for a record with a payload of so many bytes, all of it; what it holds is undefined."""
        kind = _kind(length_bytes)
        size = kind._length_
        with self._lock:
            self._take_back()
            slabs = self._roomy.setdefault(size, [])
            if not slabs:
                slabs.append(self._new_slab(size))
            slab = slabs[-1]
            offset = slab.free.pop()
            self._free_bytes -= size
            self._idle_bytes = min(self._idle_bytes, self._free_bytes)
            if not slab.free:
                slabs.pop()
        image = kind.from_buffer(slab.memory, offset)
        lent = _Lent(image, self._returned.append)
        lent.slab, lent.offset = slab, offset
        self._lent[id(lent)] = lent
        return memoryview(image).cast("B")

    def give_up_idle(self) -> None:
        """Give memory back to the system that nobody has needed since this was last done. Call it now and then."""
        with self._lock:
            self._take_back()
            self._give_up(self._idle_bytes - self._spare_bytes)
            self._idle_bytes, self._too_much_bytes = self._free_bytes, MOST_SPARE_BYTES

    def _take_back(self) -> None:
        while self._returned:
            lent = self._returned.popleft()
            del self._lent[id(lent)]
            slab = lent.slab
            if not slab.free:
                self._roomy.setdefault(slab.size_bytes, []).append(slab)
            slab.free.append(lent.offset)
            self._free_bytes += slab.size_bytes
        if self._free_bytes > self._too_much_bytes:
            self._give_up(self._free_bytes - MOST_SPARE_BYTES)
            # Where all slabs are used in part there is nothing to give up, and no use in looking at each step.
            self._too_much_bytes = max(MOST_SPARE_BYTES, self._free_bytes + SLAB_BYTES)

    def _new_slab(self, size: int) -> _Slab:
        slab = _Slab(size)
        self._free_bytes += slab.count * size
        self.held_bytes += slab.count * size
        return slab

    def _give_up(self, most_bytes: int) -> None:
        """Let slabs go that nobody uses any part of, as many as take no more than ``most_bytes``."""
        for size, slabs in list(self._roomy.items()):
            for slab in [one for one in slabs if len(one.free) == one.count]:
                slab_bytes = slab.count * size
                if slab_bytes <= most_bytes:
                    slabs.remove(slab)
                    most_bytes -= slab_bytes
                    self._free_bytes -= slab_bytes
                    self.held_bytes -= slab_bytes
            if not slabs:
                del self._roomy[size]


def payload_in(image: memoryview, length_bytes: int) -> memoryview:
    """Where a record's payload is in its image."""
    return image[HEADER_BYTES : HEADER_BYTES + length_bytes]


def image_around(payload: Payload) -> memoryview | None:
    """The image of which this is the whole payload; None when it is none's."""
    image = payload.obj if isinstance(payload, memoryview) else None
    if isinstance(image, _Image) and image.length_bytes == payload.nbytes:  # type: ignore[union-attr]
        return memoryview(image).cast("B")
    return None
