"""Frames survive any cut of their stream, and nothing else is taken for one."""

import random
import struct
import tracemalloc
from typing import Any

import pytest

from kvshelf_client.errors import FrameError
from kvshelf_client.frames import (
    AHEAD_BYTES,
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


def received(assembler: FrameAssembler, data: bytes, most_bytes: int) -> list[Arrival]:
    """What an assembler makes of a stream that is received into its room, at most so many bytes at a time."""
    arrived: list[Arrival] = []
    rest = memoryview(data)
    while rest:
        count = 0
        for buffer in assembler.room():
            part = rest[count : min(count + len(buffer), most_bytes)]
            buffer[: len(part)] = part
            count += len(part)
        arrived += assembler.filled(count)
        rest = rest[count:]
    return arrived


@pytest.mark.parametrize("most_bytes", [1, 79, 80, 81, 1000, 10_007, 1 << 20])
def test_frames_of_any_kinds_and_lengths_are_received_into_their_room(most_bytes: int) -> None:
    rng = random.Random(most_bytes)
    sent: list[tuple[FrameHeader, bytes]] = []
    for _ in range(60):
        kind, length = rng.choice([FrameKind.BLOCK, FrameKind.SNAPSHOT]), rng.choice([0, 1, 300, 300, 4000])
        for _ in range(rng.choice([1, 1, 2, 20])):
            sent.append(frame(rng.randbytes(length), kind, end_tokens=len(sent)))
    data = b"".join(packed for _, packed in sent[: 100 if most_bytes == 1 else None])
    assembler = FrameAssembler(4000)
    arrived = received(assembler, data, most_bytes)
    assert [made.header for made in arrived] == [header for header, _ in sent][: len(arrived)]
    assert b"".join(pack_header(made.header) + bytes(made.payload) for made in arrived) == data
    assert assembler.at_boundary


def test_frames_alike_are_received_at_once_and_where_they_stay() -> None:
    given: list[memoryview] = []

    def allocate(header: FrameHeader) -> memoryview:
        given.append(memoryview(bytearray(header.length_bytes)))
        return given[-1]

    length = AHEAD_BYTES // 4
    sent = [frame(bytes([number]) * length, end_tokens=number) for number in range(20)]
    data = b"".join(packed for _, packed in sent)
    assembler = FrameAssembler(length, allocate)
    steps = 0
    rest = memoryview(data)
    arrived: list[Arrival] = []
    while rest:
        room = assembler.room()
        assert sum(map(len, room)) <= length + AHEAD_BYTES + 5 * HEADER_BYTES, (
            "no more is taken for what may never come"
        )
        count = 0
        for buffer in room:
            part = rest[count : count + len(buffer)]
            buffer[: len(part)] = part
            count += len(part)
        arrived += assembler.filled(count)
        rest, steps = rest[count:], steps + 1
    assert steps <= 1 + -(-20 // 5) + 1, "five payloads and their headers at a time"
    assert [made.payload.obj for made in arrived] == [view.obj for view in given[:20]], "none was copied"
    assert len(given) <= 24


def test_a_bad_header_among_expected_frames_ends_the_assembly_behind_the_good_ones() -> None:
    sent = [frame(bytes(300), end_tokens=number)[1] for number in range(6)]
    sent[4] = b"X" + sent[4][1:]
    assembler, arrived = FrameAssembler(300), list[Arrival]()
    head, *others = sent
    arrived += assembler.feed(head[:100])
    data, count = memoryview(head[100:] + b"".join(others)), 0
    for buffer in assembler.room():
        part = data[count : count + len(buffer)]
        buffer[: len(part)] = part
        count += len(part)
    assert count == len(data), "all six are received at once"
    made = assembler.filled(count)
    arrived += [next(made) for _ in range(4)]
    with pytest.raises(FrameError, match="starts with"):
        next(made)
    assert [made.header.end_tokens for made in arrived] == [0, 1, 2, 3]


def test_longer_payloads_than_expected_are_refused_where_they_are_too_long() -> None:
    assembler = FrameAssembler(300)
    data = frame(bytes(200))[1] + frame(bytes(301))[1]
    with pytest.raises(FrameError, match="301 bytes is over 300"):
        received(assembler, data, 1 << 20)
