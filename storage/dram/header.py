"""The value format of the DRAM pool, version 1.

A record is one Redis string: a header of 152 bytes, little-endian, and the payload::

    offset  size  field
         0     4  magic b"KVSP"
         4     1  format version, 1
         5     1  provenance: 1 replayed, 2 exact
         6     1  1 when the supersedes field is meant, else 0
         7     1  length of the owner in bytes, 0..64
         8     4  part size in bytes, 0 when the payload follows the header
        12     4  label
        16     8  generation
        24     8  created: wall-clock seconds, float
        32     8  length of the payload in bytes
        40     8  xxh3_64 of the payload
        48    32  supersedes
        80    64  owner, UTF-8, padded with zeros
       144     8  xxh3_64 of the bytes 0..143, the record's key and its shard (u16)

The last field binds the value to its id: a value that turns up under another key is no record there. With a part size
the value ends after the header, and the payload lies in ``ceil(length / part size)`` values of their own.

How long a record lives is not in the value: that is the key's expiry on the server.
"""

import struct
from typing import NamedTuple

from kvshelf_client.frames import checksum_of
from kvshelf_client.words import Provenance
from storage.base import Entry, Record, RecordId

FORMAT_VERSION = 1
HEADER_BYTES = 152
MAX_OWNER_BYTES = 64

_MAGIC = b"KVSP"
_FIELDS = struct.Struct("<4sBBBBIIQdQQ32s64s")
_CHECK = struct.Struct("<Q")


class HeaderError(Exception):
    """Bytes that are no header of this format, or not the one of this id."""


class Head(NamedTuple):
    """A header's fields; see the module's table."""

    provenance: Provenance
    generation: int
    created_at: float
    length_bytes: int
    checksum: int
    part_bytes: int = 0
    supersedes: bytes | None = None
    owner: str = ""
    label: int = 0

    @property
    def parts(self) -> int:
        """Values the payload is cut into, 0 when it follows the header."""
        return -(-self.length_bytes // self.part_bytes) if self.part_bytes else 0

    @property
    def value_bytes(self) -> int:
        """Length of the record's own value."""
        return HEADER_BYTES + (0 if self.part_bytes else self.length_bytes)

    def entry(self, record_id: RecordId, last_used_at: float) -> Entry:
        """The record as the tier's callers see it."""
        return Entry(
            record_id,
            self.provenance,
            self.length_bytes,
            self.checksum,
            self.generation,
            self.created_at,
            last_used_at,
            self.supersedes,
            self.label,
        )


def head_of(record: Record, *, generation: int, created_at: float, part_bytes: int) -> Head:
    """The header of a record that is to be stored, in parts when it is longer than ``part_bytes``.

    Raises:
        ValueError: the owner has more than 64 bytes, or ``supersedes`` is no 32-byte key.
    """
    length = memoryview(record.payload).nbytes
    if len(record.owner.encode()) > MAX_OWNER_BYTES:
        raise ValueError(f"an owner has at most {MAX_OWNER_BYTES} bytes of UTF-8, got {record.owner!r}")
    if record.supersedes is not None and len(record.supersedes) != 32:
        raise ValueError(f"supersedes is a key of 32 bytes, got {len(record.supersedes)}")
    return Head(
        record.provenance,
        generation,
        created_at,
        length,
        record.checksum,
        part_bytes if length > part_bytes else 0,
        record.supersedes,
        record.owner,
        record.label,
    )


def pack_head(record_id: RecordId, head: Head) -> bytes:
    """Encode a header to its 152 bytes."""
    owner = head.owner.encode()
    fields = _FIELDS.pack(
        _MAGIC,
        FORMAT_VERSION,
        head.provenance,
        head.supersedes is not None,
        len(owner),
        head.part_bytes,
        head.label,
        head.generation,
        head.created_at,
        head.length_bytes,
        head.checksum,
        head.supersedes or b"",
        owner,
    )
    return fields + _CHECK.pack(_bind(record_id, fields))


def unpack_head(record_id: RecordId, data: bytes | memoryview) -> Head:
    """Decode the first 152 bytes of a value.

    Raises:
        HeaderError: too short, another magic or version, or a checksum that is not the one of these bytes and this id.
    """
    if len(data) < HEADER_BYTES:
        raise HeaderError(f"a value of {len(data)} bytes has no room for a header")
    fields = bytes(data[: _FIELDS.size])
    if fields[:4] != _MAGIC or fields[4] != FORMAT_VERSION:
        raise HeaderError(f"a value starts with {_MAGIC!r} and version {FORMAT_VERSION}, not with {fields[:5]!r}")
    if _CHECK.unpack_from(data, _FIELDS.size)[0] != _bind(record_id, fields):
        raise HeaderError("the header's checksum does not match its bytes and its id")
    (
        *_,
        provenance,
        is_meant,
        owner_bytes,
        part_bytes,
        label,
        generation,
        created,
        length,
        checksum,
        supersedes,
        owner,
    ) = _FIELDS.unpack(fields)
    try:
        kind, name = Provenance(provenance), owner[:owner_bytes].decode()
    except ValueError as error:
        raise HeaderError(f"the header names something unknown: {error}") from None
    superseded = supersedes if is_meant else None
    return Head(kind, generation, created, length, checksum, part_bytes, superseded, name, label)


def _bind(record_id: RecordId, fields: bytes) -> int:
    return checksum_of(fields + record_id.key + record_id.shard.to_bytes(2, "little"))
