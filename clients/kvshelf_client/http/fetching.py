"""Frames on their way down: each payload is read from the connection straight to where the sink wants it."""

from kvshelf_client.errors import FrameError, UnreachableError
from kvshelf_client.frames import HEADER_BYTES, unpack_header
from kvshelf_client.http.connection import Answer
from kvshelf_client.transport import Sink


def read_frames(answer: Answer, sink: Sink, max_payload_bytes: int) -> None:
    """Read an answer's body frame by frame into ``sink``.

    Raises:
        FrameError: a header is invalid, or announces more than ``max_payload_bytes``.
        UnreachableError: the stream ended inside a frame.
    """
    head = memoryview(bytearray(HEADER_BYTES))
    while answer.length_bytes != 0:
        count = answer.read_into(head)
        if count == 0 and answer.length_bytes is None:
            return
        if count < HEADER_BYTES:
            raise UnreachableError(f"the stream ended {count} bytes into a frame's header")
        header = unpack_header(head)
        if header.length_bytes > max_payload_bytes:
            raise FrameError(f"a payload of {header.length_bytes} bytes is over {max_payload_bytes} bytes")
        count = answer.read_into(sink.begin(header))
        if count < header.length_bytes:
            raise UnreachableError(f"the stream ended {count} bytes into a payload of {header.length_bytes}")
        sink.end()
