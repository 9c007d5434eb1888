"""The value format of the DRAM pool."""

import pytest

from kvshelf_client.words import Provenance
from storage.base import RecordId
from storage.dram.header import HEADER_BYTES, Head, HeaderError, head_of, pack_head, unpack_head
from tests.support.records import make_id, make_record

FULL = Head(Provenance.REPLAYED, (1 << 53) - 1, 1.5, 1 << 40, (1 << 64) - 1, 8 << 20, b"\xff" * 32, "é" * 32)
PLAIN = Head(Provenance.EXACT, 1, 0.0, 0, 0)


@pytest.mark.parametrize("head", [FULL, PLAIN, PLAIN._replace(supersedes=bytes(32)), PLAIN._replace(owner="a")])
def test_a_header_comes_back(head: Head) -> None:
    packed = pack_head(make_id(1), head)
    assert len(packed) == HEADER_BYTES == 152
    assert unpack_head(make_id(1), packed) == head
    assert unpack_head(make_id(1), memoryview(packed + b"payload")) == head


def test_the_layout_is_the_documented_one() -> None:
    packed = pack_head(RecordId(bytes(32), 3), FULL._replace(length_bytes=5, checksum=6, generation=7, part_bytes=8))
    assert packed[:8] == b"KVSP\x01\x01\x01\x40"
    numbers = [int.from_bytes(packed[at : at + size], "little") for at, size in ((8, 4), (16, 8), (32, 8), (40, 8))]
    assert numbers == [8, 7, 5, 6]
    assert packed[48:80] == b"\xff" * 32
    assert packed[80:144] == "é".encode() * 32


@pytest.mark.parametrize("bit", range(0, HEADER_BYTES * 8, 13))
def test_no_flipped_bit_goes_unseen(bit: int) -> None:
    packed = bytearray(pack_head(make_id(1), FULL))
    packed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(HeaderError):
        unpack_head(make_id(1), bytes(packed))


@pytest.mark.parametrize("length", [0, 1, HEADER_BYTES - 1])
def test_a_short_value_is_no_header(length: int) -> None:
    with pytest.raises(HeaderError):
        unpack_head(make_id(1), pack_head(make_id(1), FULL)[:length])


@pytest.mark.parametrize("other", [make_id(2), make_id(1, shard=1)])
def test_a_header_is_one_id_s_alone(other: RecordId) -> None:
    with pytest.raises(HeaderError):
        unpack_head(other, pack_head(make_id(1), FULL))


@pytest.mark.parametrize(("size", "parts", "value_bytes"), [(0, 0, 152), (100, 0, 252), (101, 2, 152), (300, 3, 152)])
def test_what_is_longer_than_a_part_goes_in_parts(size: int, parts: int, value_bytes: int) -> None:
    head = head_of(make_record(1, size=size), generation=1, created_at=2.0, part_bytes=100)
    assert (head.parts, head.value_bytes, head.length_bytes) == (parts, value_bytes, size)


def test_what_does_not_fit_a_header_is_a_programming_error() -> None:
    for record in (make_record(1, owner="x" * 65), make_record(1, supersedes=b"short")):
        with pytest.raises(ValueError):
            head_of(record, generation=1, created_at=0.0, part_bytes=100)
