"""Frames that come cut anywhere land whole, and what is no frame lands nowhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvshelf_client.errors import FrameError, KvshelfError, UnreachableError
from kvshelf_client.frames import FrameHeader, FrameKind, checksum_of, pack_header
from kvshelf_client.grpc.landing import FrameFeed
from kvshelf_client.words import Provenance
from tests.support.sinks import CollectingSink

MOST = 1000


def in_time() -> None:
    """There is all the time in the world."""


def frame(payload: bytes) -> bytes:
    header = FrameHeader(FrameKind.BLOCK, bytes(32), len(payload), checksum_of(payload), Provenance.EXACT)
    return pack_header(header) + payload


@given(st.lists(st.binary(max_size=200), max_size=5), st.integers(1, 400))
def test_frames_land_however_they_are_cut(payloads: list[bytes], size: int) -> None:
    stream = memoryview(b"".join(map(frame, payloads)))
    sink = CollectingSink()
    feed = FrameFeed(sink, MOST, in_time)
    for start in range(0, len(stream), size):
        feed.feed(stream[start : start + size])
    feed.end()
    assert sink.payloads == payloads


@given(st.integers(1, 80 + 49))
def test_a_stream_that_ends_inside_a_frame_is_no_whole_one(length: int) -> None:
    feed = FrameFeed(CollectingSink(), MOST, in_time)
    feed.feed(memoryview(frame(bytes(50)))[:length])
    with pytest.raises(UnreachableError):
        feed.end()


@pytest.mark.parametrize("size", [MOST, MOST + 1])
def test_a_payload_over_the_bound_takes_no_memory(size: int) -> None:
    sink = CollectingSink()
    feed = FrameFeed(sink, MOST, in_time)
    if size <= MOST:
        feed.feed(memoryview(frame(bytes(size))))
        assert sink.payloads == [bytes(size)]
        return
    with pytest.raises(FrameError, match="over 1000"):
        feed.feed(memoryview(frame(bytes(size))))
    assert sink.begun == 0


def test_what_the_sink_refuses_goes_through() -> None:
    class Full(CollectingSink):
        def begin(self, header: FrameHeader) -> memoryview:
            raise KvshelfError("not wanted")

    with pytest.raises(KvshelfError, match="not wanted"):
        FrameFeed(Full(), MOST, in_time).feed(memoryview(frame(b"x")))
