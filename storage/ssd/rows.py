"""The rows of the index: how records, segments, owners and the tier's own counters are packed into LMDB values.

Every value starts with the xxh3_64 of the bytes behind it, so that a damaged row is found out, never believed. All
numbers are little-endian, those in keys big-endian so that they sort.
"""

import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import NamedTuple

import xxhash

RECORDS, PLACES, SEGMENTS, OWNERS, META = b"records", b"places", b"segments", b"owners", b"meta"
"""The named databases of the index."""

META_KEY, REPAIR_KEY = b"tier", b"repair"
"""The keys of ``META``. A row under the second says that the accounts must be rebuilt before they are believed."""

USED = 1
"""Flag of a record: it was used since it was put where it is."""

RELAXED = 2
"""Flag of a record: it was written without a sync. After a crash of the machine its bytes may not be there."""

_SUM = struct.Struct("<Q")
_SLOT = struct.Struct("<QQQddIIIIBB2xI")
_PLACE = struct.Struct(">II")
_NUMBER = struct.Struct(">I")
_SEGMENT = struct.Struct("<QQQQQdIIB7x")
_OWNER = struct.Struct("<QQQ")
_META = struct.Struct("<QQQd")

SLOT_BYTES = _SLOT.size
_SEGMENT_AT, _PAGE_AT = 40, 44


class Slot(NamedTuple):
    """The index entry of a record: where it is and what is known of it. Times are seconds, ``page`` counts 4 KiB."""

    generation: int
    checksum: int
    created_at: float
    last_used_at: float
    segment: int
    page: int
    length_bytes: int
    owner: int
    provenance: int
    flags: int
    label: int = 0
    supersedes: bytes | None = None


_slot = partial(tuple.__new__, Slot)
"""A slot of its fields, in half of the time: thousands are made for one prompt."""


class SegmentState(IntEnum):
    """The life of a segment: free, then active while records are appended, then sealed, then free again."""

    FREE = 1
    ACTIVE = 2
    SEALED = 3


@dataclass(slots=True)
class SegmentRow:
    """What the index knows of a segment file.

    ``sequence`` tells in which order segments were last opened for writing. ``live_pages`` are the 4 KiB pages of the
    records that the index names, ``live_bytes`` their payloads. None of them was last used before ``oldest_at``.
    """

    size_bytes: int
    state: SegmentState = SegmentState.FREE
    sequence: int = 0
    write_bytes: int = 0
    live_bytes: int = 0
    oldest_at: float = 0.0
    live_records: int = 0
    live_pages: int = 0

    def copy(self) -> "SegmentRow":
        """A row of its own with the same values."""
        return replace(self)


@dataclass(slots=True)
class OwnerRow:
    """To whom payload bytes are accounted."""

    name: str
    live_bytes: int = 0
    records: int = 0

    def copy(self) -> "OwnerRow":
        """A row of its own with the same values."""
        return replace(self)


class Meta(NamedTuple):
    """The tier's own counters.

    ``epoch`` counts how often the directory was opened; it is the upper half of every generation. ``sequence`` is the
    last one given to a segment, ``latest_at`` the latest time that was ever written.
    """

    epoch: int
    sequence: int
    latest_at: float


def _sealed(packed: bytes, key: bytes = b"") -> bytes:
    return _SUM.pack(xxhash.xxh3_64_intdigest(packed[_SUM.size :] + key)) + packed[_SUM.size :]


def is_intact(value: bytes, key: bytes = b"") -> bool:
    """Whether a row's checksum fits the row, and the key where it covers that too."""
    return len(value) > _SUM.size and _SUM.unpack_from(value)[0] == xxhash.xxh3_64_intdigest(value[_SUM.size :] + key)


def pack_slot(id_bytes: bytes, slot: Slot) -> bytes:
    """A record's row: ``SLOT_BYTES``, and 32 more where it supersedes another. Its checksum covers the id."""
    return _sealed(_SLOT.pack(0, *slot[:-1]) + (slot.supersedes or b""), id_bytes)


def unpack_slot(id_bytes: bytes, value: bytes) -> Slot | None:
    """A record's row, or None when it is damaged or another record's."""
    if len(value) < SLOT_BYTES or not is_intact(value, id_bytes):
        return None
    return _slot((*_SLOT.unpack_from(value)[1:], value[SLOT_BYTES:] or None))


def place_in(id_bytes: bytes, value: bytes) -> bytes | None:
    """The place a record's row names, as :func:`pack_place` has it; None when the row is damaged."""
    if len(value) < SLOT_BYTES or not is_intact(value, id_bytes):
        return None
    return value[_SEGMENT_AT:_PAGE_AT][::-1] + value[_PAGE_AT : _PAGE_AT + 4][::-1]


def pack_place(segment: int, page: int) -> bytes:
    """The key of a place: sorts by segment, then by position."""
    return _PLACE.pack(segment, page)


def unpack_place(key: bytes) -> tuple[int, int]:
    """``(segment, page)`` of a place's key."""
    segment, page = _PLACE.unpack(key)
    return segment, page


def pack_number(number: int) -> bytes:
    """The key of a segment's or an owner's row."""
    return _NUMBER.pack(number)


def unpack_number(key: bytes) -> int:
    """The number in the key of a segment's or an owner's row."""
    number: int = _NUMBER.unpack(key)[0]
    return number


def pack_segment(row: SegmentRow) -> bytes:
    """A segment's row."""
    return _sealed(
        _SEGMENT.pack(
            0,
            row.sequence,
            row.size_bytes,
            row.write_bytes,
            row.live_bytes,
            row.oldest_at,
            row.live_records,
            row.live_pages,
            row.state,
        )
    )


def unpack_segment(value: bytes) -> SegmentRow | None:
    """A segment's row, or None when it is damaged."""
    if len(value) != _SEGMENT.size or not is_intact(value):
        return None
    _, sequence, size, write, live, oldest, records, pages, state = _SEGMENT.unpack(value)
    return SegmentRow(size, SegmentState(state), sequence, write, live, oldest, records, pages)


def pack_owner(row: OwnerRow) -> bytes:
    """An owner's row: its counts and its name."""
    return _sealed(_OWNER.pack(0, row.live_bytes, row.records) + row.name.encode())


def unpack_owner(value: bytes) -> OwnerRow | None:
    """An owner's row, or None when it is damaged."""
    if len(value) < _OWNER.size or not is_intact(value):
        return None
    _, live, records = _OWNER.unpack_from(value)
    return OwnerRow(value[_OWNER.size :].decode(), live, records)


def pack_meta(meta: Meta) -> bytes:
    """The row of the tier's own counters."""
    return _sealed(_META.pack(0, *meta))


def unpack_meta(value: bytes) -> Meta | None:
    """The row of the tier's own counters, or None when it is damaged."""
    if len(value) != _META.size or not is_intact(value):
        return None
    return Meta(*_META.unpack(value)[1:])
