"""Frames on their way down: cut out of the messages they come in, each payload copied once, into the sink."""

from collections.abc import Callable

from kvshelf_client.errors import FrameError, UnreachableError
from kvshelf_client.frames import HEADER_BYTES, FrameHeader, unpack_header
from kvshelf_client.transport import Sink


class FrameFeed:
    """Puts a stream of pieces, cut anywhere, into a sink.

    Args:
        max_payload_bytes: a frame that announces more is refused before memory is taken for it.
        check: called for each frame once the sink has room for it; raises when there is no time for it any more.
    """

    def __init__(self, sink: Sink, max_payload_bytes: int, check: Callable[[], None]) -> None:
        self._sink = sink
        self._max_payload_bytes = max_payload_bytes
        self._check = check
        self._head = bytearray()
        self._room = memoryview(b"")

    def feed(self, piece: memoryview) -> None:
        """Take the next piece of the stream.

        Raises:
            FrameError: a header is invalid, or announces more than ``max_payload_bytes``. And what the sink and the
                check raise.
        """
        while piece:
            if self._room:
                piece = self._fill(piece)
                continue
            missing = HEADER_BYTES - len(self._head)
            self._head += piece[:missing]
            piece = piece[missing:]
            if len(self._head) == HEADER_BYTES:
                self._begin(unpack_header(self._head))
                self._head.clear()

    def end(self) -> None:
        """The stream is over. Raises UnreachableError when it ended inside a frame."""
        if self._room or self._head:
            raise UnreachableError("the stream ended inside a frame")

    def _begin(self, header: FrameHeader) -> None:
        if header.length_bytes > self._max_payload_bytes:
            raise FrameError(f"a payload of {header.length_bytes} bytes is over {self._max_payload_bytes} bytes")
        self._room = self._sink.begin(header)
        self._check()  # The sink may have taken its time.
        if not header.length_bytes:
            self._sink.end()

    def _fill(self, piece: memoryview) -> memoryview:
        part = piece[: len(self._room)]
        self._room[: len(part)] = part
        self._room = self._room[len(part) :]
        if not self._room:
            self._sink.end()
        return piece[len(part) :]
