"""The messages that are written and read by hand are protobuf's own, byte for byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvshelf_client.errors import FrameError
from kvshelf_client.grpc.chunks import pack_frame_chunk, pack_store_chunk, read_frame_chunk, read_store_chunk
from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb

PARTS = st.lists(st.binary(max_size=300), max_size=5)


@given(PARTS, st.integers(0, 2**64 - 1), st.booleans())
def test_a_frame_chunk_is_what_protobuf_makes_of_it(parts: list[bytes], length_bytes: int, fell_back: bool) -> None:
    message = pb.FrameChunk(length_bytes=length_bytes, fell_back=fell_back, frames=b"".join(parts))
    packed = pack_frame_chunk(parts, length_bytes=length_bytes, fell_back=fell_back)
    assert packed == message.SerializeToString()
    assert read_frame_chunk(packed) == (length_bytes, fell_back, memoryview(message.frames))


@given(PARTS, st.none() | st.builds(pb.StoreStart, namespace=st.text(max_size=9), relaxed=st.booleans()))
def test_a_store_chunk_is_what_protobuf_makes_of_it(parts: list[bytes], start: pb.StoreStart | None) -> None:
    message = pb.StoreChunk(start=start, frames=b"".join(parts))
    encoded = None if start is None else start.SerializeToString()
    assert pack_store_chunk(parts, start=encoded) == message.SerializeToString()
    assert read_store_chunk(message.SerializeToString()) == (encoded, memoryview(message.frames))


def test_frames_are_not_copied_on_their_way_in() -> None:
    message = pack_frame_chunk([b"frames"])
    assert read_frame_chunk(message)[2].obj is message


@pytest.mark.parametrize("field", [b"\x20\x07", b"\x21" + bytes(8), b"\x22\x01x", b"\x25" + bytes(4), b"\xa0\x06\x01"])
def test_fields_of_a_newer_version_are_passed_over(field: bytes) -> None:
    assert bytes(read_frame_chunk(field + pack_frame_chunk([b"a"]) + field)[2]) == b"a"
    assert bytes(read_store_chunk(field + pack_store_chunk([b"a"]) + field)[1]) == b"a"


@pytest.mark.parametrize("message", [b"\x1a", b"\x1a\x05abcd", b"\x80", b"\xff" * 11, b"\x1b", b"\x1e"])
def test_what_is_no_message_is_an_error(message: bytes) -> None:
    with pytest.raises(FrameError):
        read_frame_chunk(message)
    with pytest.raises(FrameError):
        read_store_chunk(message)


@given(st.binary(max_size=64))
def test_any_bytes_are_read_as_protobuf_reads_them_or_refused(data: bytes) -> None:
    try:
        length_bytes, fell_back, frames = read_frame_chunk(data)
    except FrameError:
        return
    try:
        message = pb.FrameChunk.FromString(data)
    except Exception:  # noqa: BLE001 - protobuf is stricter about what neither of them uses
        return
    assert (message.fell_back, message.frames) == (fell_back, bytes(frames))
    assert message.length_bytes == length_bytes % 2**64
