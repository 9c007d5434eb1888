"""Frames survive any cut of their stream, and nothing else is taken for one."""

import struct
import tracemalloc
from typing import Any

import pytest

from kvshelf_client.errors import FrameError
from kvshelf_client.frames import (
    HEADER_BYTES,
    PROMISED_BYTES,
    Arrival,
    FrameAssembler,
    FrameHeader,
    FrameKind,
    checksum_of,
    pack_header,
    unpack_header,
)
from kvshelf_client.words import MissReason, Provenance

KEY = bytes(range(32))
BIGGEST = FrameHeader(
    FrameKind.SNAPSHOT,
    b"\xff" * 32,
    2**64 - 1,
    2**64 - 1,
    Provenance.EXACT,
    2**16 - 1,
    2**32 - 1,
    2**64 - 1,
    MissReason.TIER_DOWN,
)


def frame(payload: bytes, kind: FrameKind = FrameKind.BLOCK, **fields: Any) -> tuple[FrameHeader, bytes]:
    """A frame's header and all its bytes."""
    provenance = None if kind is FrameKind.FALLBACK else Provenance.REPLAYED
    header = FrameHeader(kind, KEY, len(payload), checksum_of(payload), provenance)._replace(**fields)
    return header, pack_header(header) + payload


STREAM = [
    frame(b"first payload", end_tokens=128, generation=7),
    frame(b"", kind=FrameKind.SNAPSHOT, provenance=Provenance.EXACT, shard=3),
    frame(b"\0" * 5, miss=MissReason.CORRUPT),
    frame(b'{"plan": 1}', kind=FrameKind.FALLBACK),
    frame(b""),
]
BYTES = b"".join(data for _, data in STREAM)
EXPECTED = [Arrival(header, memoryview(data)[HEADER_BYTES:]) for header, data in STREAM]


@pytest.mark.parametrize("header", [*(header for header, _ in STREAM), BIGGEST])
def test_headers_round_trip(header: FrameHeader) -> None:
    packed = pack_header(header)
    assert len(packed) == HEADER_BYTES
    for data in (packed, bytearray(packed), memoryview(packed)):
        assert unpack_header(data) == header


def test_the_header_is_laid_out_as_documented() -> None:
    header, _ = frame(b"abc", shard=258, end_tokens=1 << 24, generation=1 << 56, miss=MissReason.EXPIRED)
    packed = pack_header(header)
    assert packed[:12] == b"KVSF" + bytes([1, 1, 1, 2, 2, 1, 0, 0])
    assert packed[12:16] == b"\0\0\0\1"
    assert packed[16:24] == b"\3" + bytes(7)
    assert packed[24:32] == bytes(7) + b"\1"
    assert packed[32:64] == KEY
    assert packed[64:72] == checksum_of(b"abc").to_bytes(8, "little")
    assert packed[72:80] == checksum_of(packed[:72]).to_bytes(8, "little")


@pytest.mark.parametrize("size", range(1, len(BYTES) + 1))
def test_a_stream_cut_into_chunks_of_any_size_gives_the_same_frames(size: int) -> None:
    assembler = FrameAssembler(100)
    frames = [made for start in range(0, len(BYTES), size) for made in assembler.feed(BYTES[start : start + size])]
    assert frames == EXPECTED
    assert assembler.at_boundary


def test_a_stream_may_end_between_frames_only() -> None:
    ends, position = {0}, 0
    for _, data in STREAM:
        position += len(data)
        ends.add(position)
    for cut in range(len(BYTES) + 1):
        assembler = FrameAssembler(100)
        for _ in assembler.feed(memoryview(BYTES)[:cut]):
            pass
        assert assembler.at_boundary == (cut in ends), cut


def test_an_empty_chunk_changes_nothing() -> None:
    assembler = FrameAssembler(100)
    assert list(assembler.feed(b"")) == []
    assert assembler.at_boundary


def test_payloads_belong_to_the_receiver() -> None:
    chunk = bytearray(BYTES)
    made = list(FrameAssembler(100).feed(memoryview(chunk)))
    chunk[:] = bytes(len(chunk))
    made[0].payload[:1] = b"F"
    assert bytes(made[0].payload) == b"First payload"
    assert made[1:] == EXPECTED[1:]


@pytest.mark.parametrize("position", range(HEADER_BYTES))
def test_every_changed_bit_of_a_header_is_refused(position: int) -> None:
    good = BYTES[:HEADER_BYTES]
    for bit in range(8):
        bad = bytearray(good)
        bad[position] ^= 1 << bit
        with pytest.raises(FrameError):
            unpack_header(bad)


def test_a_changed_header_ends_an_assembly() -> None:
    bad = bytearray(BYTES)
    bad[40] ^= 1
    with pytest.raises(FrameError, match="checksum"):
        list(FrameAssembler(100).feed(bytes(bad)))


@pytest.mark.parametrize("size", [0, HEADER_BYTES - 1, HEADER_BYTES + 1])
def test_a_header_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(FrameError, match=f"got {size}"):
        unpack_header(bytes(size))


@pytest.mark.parametrize(
    ("offset", "value", "text"),
    [
        (0, b"KVSG", "starts with"),
        (4, b"\0", "wire version 0"),
        (4, b"\2", "wire version 2"),
        (5, b"\0", "unknown: 0"),
        (5, b"\4", "unknown: 4"),
        (6, b"\0", "unknown: 0"),
        (6, b"\3", "unknown: 3"),
        (7, b"\6", "no miss reason"),
        (10, b"\1", "reserved"),
        (11, b"\1", "reserved"),
    ],
)
def test_a_whole_header_that_says_something_unknown_is_refused(offset: int, value: bytes, text: str) -> None:
    fields = bytearray(BYTES[: HEADER_BYTES - 8])
    fields[offset : offset + len(value)] = value
    sealed = bytes(fields) + struct.pack("<Q", checksum_of(bytes(fields)))
    with pytest.raises(FrameError, match=text):
        unpack_header(sealed)


@pytest.mark.parametrize("limit", [0, 12, 13])
def test_a_payload_over_the_limit_is_refused_before_it_arrives(limit: int) -> None:
    assembler = FrameAssembler(limit)
    head = BYTES[:HEADER_BYTES]
    if limit >= 13:
        assert list(assembler.feed(head)) == []
        return
    with pytest.raises(FrameError, match=f"13 bytes is over {limit}"):
        list(assembler.feed(head))


def test_an_absurd_length_takes_no_memory() -> None:
    header, _ = frame(b"", length_bytes=2**63)
    with pytest.raises(FrameError, match="over 100"):
        list(FrameAssembler(100).feed(pack_header(header)))


@pytest.mark.parametrize("chunks", [0, 1, 100])
def test_a_long_payload_takes_memory_as_it_arrives(chunks: int) -> None:
    header, _ = frame(b"", length_bytes=1 << 30)
    assembler, chunk = FrameAssembler(1 << 30), bytes(1 << 16)
    tracemalloc.start()
    try:
        for data in (pack_header(header), *[chunk] * chunks):
            assert list(assembler.feed(data)) == []
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken <= chunks * len(chunk) * 9 // 8 + 10_000


@pytest.mark.parametrize("length", [PROMISED_BYTES - 1, PROMISED_BYTES, PROMISED_BYTES + 1, 3 * PROMISED_BYTES + 7])
@pytest.mark.parametrize("size", [1 << 16, 100_003, 1 << 24])
def test_long_payloads_come_whole(length: int, size: int) -> None:
    payload = bytes(range(251)) * (length // 251 + 1)
    sent = [frame(payload[:length]), frame(b"after"), frame(payload[:length], shard=1)]
    data = b"".join(packed for _, packed in sent)
    assembler = FrameAssembler(length)
    frames = [made for start in range(0, len(data), size) for made in assembler.feed(data[start : start + size])]
    assert [made.header for made in frames] == [header for header, _ in sent]
    assert [bytes(made.payload) for made in frames] == [payload[:length], b"after", payload[:length]]
    assert assembler.at_boundary
