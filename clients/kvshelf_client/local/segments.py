"""Segment files that are mapped, by what they are, so that a file is mapped once however often its descriptor comes."""

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence

from kvshelf_client.errors import FrameError
from kvshelf_client.local.channel import close_all
from kvshelf_client.local.residency import address_of

MAX_SEGMENTS = 256
"""Most files that stay mapped. Each is an address range and a descriptor, no memory."""

_Identity = tuple[int, int]


class Segment:
    """A file that is mapped for reading, for as long as anybody has a view of it."""

    def __init__(self, descriptor: int) -> None:
        self._mapping = mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ)
        self.address = address_of(self._mapping)
        self.size_bytes = len(self._mapping)
        self._view = memoryview(self._mapping)

    def view(self, offset_bytes: int, length_bytes: int) -> memoryview:
        """A stretch of the file, as it is and as it will be. Raises FrameError when it is not in the file."""
        if offset_bytes + length_bytes > self.size_bytes:
            raise FrameError(f"{offset_bytes} + {length_bytes} bytes are beyond a file of {self.size_bytes}")
        return self._view[offset_bytes : offset_bytes + length_bytes]


class Segments:
    """The mapped files. Thread-safe. What is pushed out, or forgotten, is unmapped when its last view is gone.

    A file is known by device and inode. Its mapping keeps the inode in use, so no other file can have that meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._segments: OrderedDict[_Identity, Segment] = OrderedDict()

    def __len__(self) -> int:
        return len(self._segments)

    def take(self, descriptors: Sequence[int]) -> list[Segment]:
        """The segments of descriptors, in order. Closes the descriptors. Raises OSError."""
        try:
            return [self._segment(descriptor) for descriptor in descriptors]
        finally:
            close_all(descriptors)

    def forget(self) -> None:
        """Let go of all."""
        with self._lock:
            self._segments.clear()

    def _segment(self, descriptor: int) -> Segment:
        status = os.fstat(descriptor)
        identity = (status.st_dev, status.st_ino)
        with self._lock:
            segment = self._segments.get(identity)
            if segment is None or segment.size_bytes != status.st_size:
                segment = self._segments[identity] = Segment(descriptor)
            self._segments.move_to_end(identity)
            if len(self._segments) > MAX_SEGMENTS:
                self._segments.popitem(last=False)
            return segment
