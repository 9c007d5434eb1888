"""Sinks for fetches, with everything at hand that a test asks about."""

from kvshelf_client.frames import FrameHeader, checksum_of


class CollectingSink:
    """Keeps every header and payload, the damaged ones too."""

    def __init__(self) -> None:
        self.headers: list[FrameHeader] = []
        self.payloads: list[bytes] = []
        self._room = bytearray()

    @property
    def begun(self) -> int:
        """How many frames have begun."""
        return len(self.headers)

    def restart(self) -> None:
        """See :meth:`Sink.restart <kvshelf_client.transport.Sink.restart>`."""
        self.headers.clear()
        self.payloads.clear()

    def expect(self) -> None:
        """See :meth:`Sink.expect`: there is nothing to make ready."""

    def begin(self, header: FrameHeader) -> memoryview:
        """See :meth:`Sink.begin <kvshelf_client.transport.Sink.begin>`."""
        self.headers.append(header)
        self._room = bytearray(header.length_bytes)
        return memoryview(self._room)

    def end(self) -> bool:
        """See :meth:`Sink.end <kvshelf_client.transport.Sink.end>`."""
        self.payloads.append(bytes(self._room))
        return checksum_of(self._room) == self.headers[-1].checksum

    def finish(self) -> None:
        """See :meth:`Sink.finish <kvshelf_client.transport.Sink.finish>`."""
