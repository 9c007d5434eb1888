"""The bytes of records and rows: what goes in comes out, and no flipped bit is believed."""

import json
import struct
from pathlib import Path

import pytest
import xxhash

from kvshelf_client.words import Provenance
from storage.ssd.format import (
    HEADER_BYTES,
    MAGIC,
    ON_DISK_FORMAT,
    PAGE_BYTES,
    RecordHeader,
    UnusableDirectoryError,
    open_format,
    padded_bytes,
)
from storage.ssd.rows import (
    SLOT_BYTES,
    USED,
    Meta,
    OwnerRow,
    SegmentRow,
    SegmentState,
    Slot,
    pack_meta,
    pack_owner,
    pack_place,
    pack_segment,
    pack_slot,
    unpack_meta,
    unpack_owner,
    unpack_place,
    unpack_segment,
    unpack_slot,
)

HEADER = RecordHeader(bytes(range(34)), (7 << 32) + 5, Provenance.EXACT, 113_920, 1_000_000.25, 2**64 - 3)
SLOT = Slot((7 << 32) + 5, 2**64 - 3, 1.5, 2.5, 9, 27, 113_920, 3, Provenance.REPLAYED, USED, 2**32 - 1, b"s" * 32)
ID = bytes(range(34))
SEGMENT = SegmentRow(1 << 20, SegmentState.SEALED, 11, 999_424, 900_000, 17.5, 8, 240)


def flips(data: bytes) -> list[bytes]:
    """``data`` with each of its bits flipped in turn."""
    return [data[:n] + bytes([data[n] ^ (1 << bit)]) + data[n + 1 :] for n in range(len(data)) for bit in range(8)]


def test_a_header_comes_back() -> None:
    packed = HEADER.pack()
    assert len(packed) == HEADER_BYTES
    assert RecordHeader.unpack(packed) == HEADER
    assert RecordHeader.unpack(memoryview(packed + b"payload")) == HEADER


def test_a_header_is_laid_out_as_documented() -> None:
    packed = HEADER.pack()
    assert packed[:8] == MAGIC == b"KVSHREC\x01"
    assert struct.unpack_from("<HB", packed, 8) == (ON_DISK_FORMAT, 2)
    assert struct.unpack_from("<QQdQ", packed, 16) == ((7 << 32) + 5, 113_920, 1_000_000.25, 2**64 - 3)
    assert packed[48:82] == bytes(range(34))
    assert struct.unpack_from("<Q", packed, 120) == (xxhash.xxh3_64_intdigest(packed[:120]),)


def test_no_flipped_bit_of_a_header_is_believed() -> None:
    assert {RecordHeader.unpack(damaged) for damaged in flips(HEADER.pack())} == {None}


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1])
def test_a_short_header_is_none(size: int) -> None:
    assert RecordHeader.unpack(HEADER.pack()[:size]) is None
    assert RecordHeader.unpack(bytes(size)) is None


@pytest.mark.parametrize("change", [(0, b"X"), (8, b"\x01"), (8, b"\x03")])
def test_a_header_of_another_kind_is_none(change: tuple[int, bytes]) -> None:
    offset, new = change
    body = bytearray(HEADER.pack()[:120])
    body[offset : offset + 1] = new
    assert RecordHeader.unpack(bytes(body) + struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(body)))) is None


def test_zeros_are_no_header() -> None:
    assert RecordHeader.unpack(bytes(PAGE_BYTES)) is None


@pytest.mark.parametrize(
    ("length", "padded"),
    [(0, 4096), (1, 4096), (3968, 4096), (3969, 8192), (113_920, 114_688), (8192 - 128, 8192), (8192 - 127, 12288)],
)
def test_records_are_padded_to_whole_pages(length: int, padded: int) -> None:
    assert padded_bytes(length) == padded


@pytest.mark.parametrize("supersedes", [None, b"s" * 32])
def test_a_record_row_comes_back(supersedes: bytes | None) -> None:
    slot = SLOT._replace(supersedes=supersedes)
    packed = pack_slot(ID, slot)
    assert len(packed) == SLOT_BYTES + (32 if supersedes else 0) == (96 if supersedes else 64)
    assert unpack_slot(ID, packed) == slot


@pytest.mark.parametrize("row", [OwnerRow("", 5, 1), OwnerRow("é" * 32, 2**40, 2**33)])
def test_an_owner_row_comes_back(row: OwnerRow) -> None:
    assert unpack_owner(pack_owner(row)) == row


def test_the_other_rows_come_back() -> None:
    assert unpack_segment(pack_segment(SEGMENT)) == SEGMENT
    assert unpack_meta(pack_meta(Meta(3, 4, 5.5))) == Meta(3, 4, 5.5)
    assert unpack_place(pack_place(9, 27)) == (9, 27)


def test_no_flipped_bit_of_a_row_is_believed() -> None:
    assert {unpack_slot(ID, damaged) for damaged in flips(pack_slot(ID, SLOT))} == {None}
    assert {unpack_slot(other, pack_slot(ID, SLOT)) for other in flips(ID)} == {None}, "a row under another key"
    assert [unpack_segment(damaged) for damaged in flips(pack_segment(SEGMENT))] == [None] * 8 * 64
    assert all(unpack_owner(damaged) is None for damaged in flips(pack_owner(OwnerRow("acme", 1, 1))))
    assert {unpack_meta(damaged) for damaged in flips(pack_meta(Meta(3, 4, 5.5)))} == {None}


def test_rows_of_another_length_are_none() -> None:
    assert unpack_slot(ID, b"") is unpack_slot(ID, pack_slot(ID, SLOT)[:-1]) is unpack_slot(ID, bytes(64)) is None
    assert unpack_segment(pack_segment(SEGMENT) + b"\0") is None
    assert unpack_owner(b"") is None
    assert unpack_meta(b"") is None


def test_places_sort_by_segment_and_position() -> None:
    places = [(1, 0), (1, 255), (1, 256), (2, 0), (255, 9), (256, 0)]
    assert sorted(pack_place(*place) for place in places) == [pack_place(*place) for place in places]


def test_the_format_file_is_made_once_and_checked(tmp_path: Path) -> None:
    open_format(tmp_path)
    made = (tmp_path / "FORMAT").read_bytes()
    assert json.loads(made) == {"format": ON_DISK_FORMAT, "page_bytes": PAGE_BYTES, "byte_order": "little"}
    open_format(tmp_path)
    assert (tmp_path / "FORMAT").read_bytes() == made
    assert [path.name for path in tmp_path.iterdir()] == ["FORMAT"]


@pytest.mark.parametrize(
    "text",
    [
        '{"format": 2, "page_bytes": 4096}',
        '{"format": 0, "page_bytes": 4096}',
        '{"format": 1, "page_bytes": 4096}',
        '{"format": 2, "page_bytes": 512, "byte_order": "little"}',
        '{"format": 2, "page_bytes": 4096, "byte_order": "big"}',
        '{"format": "x", "page_bytes": 4096}',
        '{"page_bytes": 4096}',
        *("", "{", "[]", "7", "\xff"),
    ],
)
def test_another_format_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "FORMAT").write_text(text, encoding="latin-1")
    with pytest.raises(UnusableDirectoryError, match="FORMAT"):
        open_format(tmp_path)
    assert (tmp_path / "FORMAT").read_text(encoding="latin-1") == text, "nothing was overwritten"


@pytest.mark.parametrize("name", ["index", "segments"])
def test_a_directory_without_its_format_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(UnusableDirectoryError, match=name):
        open_format(tmp_path)
    assert not (tmp_path / "FORMAT").exists()


def test_other_files_in_the_directory_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "catalog").mkdir()
    open_format(tmp_path)
    assert (tmp_path / "FORMAT").exists()
