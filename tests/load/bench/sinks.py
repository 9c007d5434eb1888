"""Sinks of fetches that are done again and again."""

from kvshelf_client.frames import FrameHeader, checksum_of


class ReusedBuffers:
    """A sink of one buffer a record, used again by each fetch. ``moved`` counts payload bytes found good."""

    def __init__(self, size_bytes: int) -> None:
        self._room = memoryview(bytearray(size_bytes))
        self.moved = self._at = 0

    def restart(self) -> None:
        """Begin at the first buffer again."""
        self._at = 0

    def expect(self) -> None:
        """See :meth:`Sink.expect`: there is nothing to make ready."""

    def begin(self, header: FrameHeader) -> memoryview:
        """See :meth:`Sink.begin <kvshelf_client.transport.Sink.begin>`."""
        assert header.miss is None
        self._header, self._view = header, self._room[self._at : self._at + header.length_bytes]
        self._at += header.length_bytes
        return self._view

    def end(self) -> bool:
        """See :meth:`Sink.end <kvshelf_client.transport.Sink.end>`."""
        assert checksum_of(self._view) == self._header.checksum
        self.moved += len(self._view)
        return True

    def finish(self) -> None:
        """Nothing is left to do."""
