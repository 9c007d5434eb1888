"""Frames on their way up: headers packed, small payloads gathered, large ones sent from the caller's own buffer."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kvshelf_client.frames import HEADER_BYTES, FrameHeader, FrameKind, check_header, checksum_of, pack_header
from kvshelf_client.words import Provenance, RecordClass

_GATHER_BYTES = 64 * 1024
_LARGE_PAYLOAD_BYTES = 16 * 1024


class StoreRecord(NamedTuple):
    """A record to store. The payload is sent from where it is: leave it unchanged until the store has returned.

    ``end_tokens`` is the end of the block, or the boundary of the snapshot, from the start of the prompt.
    """

    record_class: RecordClass
    key: bytes
    end_tokens: int
    payload: bytes | bytearray | memoryview
    provenance: Provenance
    shard: int = 0


def body_length_bytes(records: Iterable[StoreRecord]) -> int:
    """The length of the frames of ``records`` on the wire.

    Raises:
        ValueError: a field of a record is out of range; it is named. So nothing has been sent by then.
    """
    total = 0
    for record in records:
        length = memoryview(record.payload).nbytes
        check_header(_header(record, length, 0))
        total += HEADER_BYTES + length
    return total


def frame_parts(records: Iterable[StoreRecord]) -> Iterator[bytearray | memoryview]:
    """The frames of ``records`` in parts of about 64 KiB, or a large payload alone; none of them is empty.

    Raises:
        ValueError: a field of a record is out of range; it is named.
    """
    gathered = bytearray()
    for record in records:
        payload = memoryview(record.payload).cast("B")
        gathered += pack_header(_header(record, len(payload), checksum_of(payload)))
        if len(payload) < _LARGE_PAYLOAD_BYTES:
            gathered += payload
            if len(gathered) < _GATHER_BYTES:
                continue
        yield gathered
        gathered = bytearray()
        if len(payload) >= _LARGE_PAYLOAD_BYTES:
            yield payload
    if gathered:
        yield gathered


def _header(record: StoreRecord, length_bytes: int, checksum: int) -> FrameHeader:
    return FrameHeader(
        FrameKind(record.record_class),
        record.key,
        length_bytes,
        checksum,
        record.provenance,
        record.shard,
        record.end_tokens,
    )
