"""The bytes of a record on disk, and the ``FORMAT`` file that says which layout a data directory has.

A record is a header of ``HEADER_BYTES``, its payload, and zeros up to the next multiple of ``PAGE_BYTES``. It never
crosses the end of its segment. docs/on-disk-format.md draws it.
"""

import json
import os
import struct
import sys
from pathlib import Path
from typing import NamedTuple

import xxhash

ON_DISK_FORMAT = 2
"""Raised by every change after which an older kvshelf could misread a directory, or a newer one an older directory."""

PAGE_BYTES = 4096
HEADER_BYTES = 128
KEY_BYTES = 32
ID_BYTES = KEY_BYTES + 2
MAGIC = b"KVSHREC\x01"

_HEADER = struct.Struct("<8sHBxIQQdQ34s38x")
_HEADER_SUM = struct.Struct("<Q")
FORMAT_FILE = "FORMAT"


class UnusableDirectoryError(Exception):
    """A data directory that this version cannot or must not open; the message says why and what to do."""


class RecordHeader(NamedTuple):
    """What a record on disk says of itself. ``id_bytes`` is key || shard (u16 big-endian)."""

    id_bytes: bytes
    generation: int
    provenance: int
    length_bytes: int
    created_at: float
    payload_checksum: int

    def pack(self) -> bytes:
        """The header's ``HEADER_BYTES`` bytes; the last eight are the xxh3_64 of those before."""
        body = _HEADER.pack(
            MAGIC,
            ON_DISK_FORMAT,
            self.provenance,
            0,
            self.generation,
            self.length_bytes,
            self.created_at,
            self.payload_checksum,
            self.id_bytes,
        )
        return body + _HEADER_SUM.pack(xxhash.xxh3_64_intdigest(body))

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> "RecordHeader | None":
        """The header in the first bytes of ``data``, or None when those are no intact header."""
        if len(data) < HEADER_BYTES:
            return None
        (checksum,) = _HEADER_SUM.unpack_from(data, _HEADER.size)
        if xxhash.xxh3_64_intdigest(data[: _HEADER.size]) != checksum:
            return None
        magic, version, provenance, _, generation, length, created, payload_sum, id_bytes = _HEADER.unpack_from(data)
        if magic != MAGIC or version != ON_DISK_FORMAT:
            return None
        return cls(id_bytes, generation, provenance, length, created, payload_sum)


def padded_bytes(length_bytes: int) -> int:
    """What a record with a payload of ``length_bytes`` takes in a segment."""
    return -(-(HEADER_BYTES + length_bytes) // PAGE_BYTES) * PAGE_BYTES


def check_format(directory: Path) -> None:
    """Look whether a directory has the format that is read here, and change nothing.

    Raises:
        UnusableDirectoryError: it has another one, or none.
    """
    path = directory / FORMAT_FILE
    if not path.is_file():
        raise UnusableDirectoryError(f"{directory} is no data directory: it has no file {FORMAT_FILE}")
    _check_format(path)


def open_format(directory: Path) -> None:
    """Create a directory's ``FORMAT`` file, or check the one that is there.

    Raises:
        UnusableDirectoryError: the directory has another format, or is no data directory but holds other files.
    """
    path = directory / FORMAT_FILE
    if path.exists():
        _check_format(path)
        return
    foreign = sorted(name.name for name in directory.iterdir() if name.name in {"index", "segments"})
    if foreign:
        raise UnusableDirectoryError(f"{directory} holds {foreign} but no {FORMAT_FILE}: empty it or name another")
    temporary = directory / f"{FORMAT_FILE}.new"
    with temporary.open("w", encoding="ascii") as file:
        json.dump({"format": ON_DISK_FORMAT, "page_bytes": PAGE_BYTES, "byte_order": sys.byteorder}, file)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(directory)


def _check_format(path: Path) -> None:
    try:
        found = json.loads(path.read_text(encoding="ascii"))
        version = int(found["format"])
        written = (found["page_bytes"], found["byte_order"]) if version == ON_DISK_FORMAT else None
    except (ValueError, KeyError, TypeError) as error:
        raise UnusableDirectoryError(
            f"{path} is damaged ({error}): move the directory away, the cache refills"
        ) from None
    if version != ON_DISK_FORMAT:
        raise UnusableDirectoryError(
            f"{path} says on-disk format {version}; this kvshelf reads and writes only format {ON_DISK_FORMAT}:"
            " run the version that wrote it, or name an empty directory"
        )
    if written != (PAGE_BYTES, sys.byteorder):
        raise UnusableDirectoryError(
            f"{path} says that another kind of machine wrote it: (page bytes, byte order) are {written},"
            f" here {(PAGE_BYTES, sys.byteorder)}: name an empty directory, the cache refills"
        )


def sync_file(path: Path) -> None:
    """Make the bytes of a file durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
