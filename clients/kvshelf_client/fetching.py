"""Frames on their way down: each payload is read from the connection straight into a buffer of its own."""

from collections.abc import Iterator

from kvshelf_client.connection import Answer
from kvshelf_client.errors import FrameError, UnreachableError
from kvshelf_client.frames import HEADER_BYTES, Frame, checksum_of, unpack_header
from kvshelf_client.words import MissReason


def read_frames(answer: Answer, max_payload_bytes: int) -> Iterator[Frame]:
    """Read an answer's body frame by frame.

    A payload that does not match its checksum is yielded as a miss with reason ``corrupt``: its bytes are not to be
    used. Frames the service marked as misses carry filler, whose checksum is not looked at.

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
        payload = bytearray(header.length_bytes)
        count = answer.read_into(memoryview(payload))
        if count < header.length_bytes:
            raise UnreachableError(f"the stream ended {count} bytes into a payload of {header.length_bytes}")
        if header.miss is None and checksum_of(payload) != header.checksum:
            header = header._replace(miss=MissReason.CORRUPT)
        yield Frame(header, payload)
