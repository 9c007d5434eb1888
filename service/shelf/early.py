"""The frame of a snapshot that is sent while the snapshot is still being read."""

from collections.abc import Callable

from kvshelf_client.frames import checksum_of
from storage.base import Entry, Payload

OnHead = Callable[[int, list[memoryview]], None]
"""Told of the snapshot's frame while it is read: the length of all the fetch, and as much of the frame as is there.

It is told again and again, of more each time, of the whole only when that was found sound. It must neither wait nor
raise.
"""


class EarlyFrame:
    """Tells of the frame while it comes, and knows how it has to end.

    Args:
        header_of: makes the frame's header.
        rest_bytes: finds how long all is that follows the frame.
        on_head: who is told.
    """

    def __init__(self, header_of: Callable[[Entry], bytes], rest_bytes: Callable[[], int], on_head: OnHead) -> None:
        self._header_of, self._rest_bytes, self._on_head = header_of, rest_bytes, on_head
        self._entry: Entry | None = None
        self._header = self._payload = memoryview(b"")
        self._length_bytes = 0

    def __call__(self, entry: Entry, payload: memoryview, arrived_bytes: int) -> None:
        """See :data:`storage.base.OnArrival`."""
        if self._entry is None:
            self._entry, self._payload = entry, payload
            self._header = memoryview(self._header_of(entry))
            self._length_bytes = len(self._header) + len(payload) + self._rest_bytes()
        self._on_head(self._length_bytes, [self._header, payload[:arrived_bytes]])

    @property
    def has_begun(self) -> bool:
        """Whether anything of the frame was told of: then it is sent, come what may."""
        return self._entry is not None

    def is_of(self, header: bytes) -> bool:
        """Whether what was read in the end has this frame: it is the only one that can be sent, once it was begun."""
        return not self.has_begun or self._header == header

    def spoilt(self) -> list[Payload]:
        """A frame that begins as what was told of, and is bad for whoever verifies it."""
        if self._entry is not None and checksum_of(self._payload) == self._entry.checksum:
            self._payload[-1] ^= 1
        return [self._header, self._payload]
