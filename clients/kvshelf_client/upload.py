"""Frames on their way up: headers packed, small payloads gathered, large ones sent from the caller's own buffer."""

from collections.abc import Iterable, Iterator

from kvshelf_client.frames import HEADER_BYTES, FrameHeader, FrameKind, checksum_of, pack_header
from kvshelf_client.requests import StoreRecord

_GATHER_BYTES = 64 * 1024
_LARGE_PAYLOAD_BYTES = 16 * 1024


def body_length_bytes(records: Iterable[StoreRecord]) -> int:
    """The length of the frames of ``records`` on the wire.

    Raises:
        ValueError: a field of a record is out of range, or its payload in pieces; it is named. So nothing has been sent
            by then.
    """
    total = 0
    for record in records:
        payload = memoryview(record.payload)
        if not payload.c_contiguous:
            raise ValueError(f"the payload of {record} is not contiguous")
        length = payload.nbytes
        pack_header(_header(record, length, 0))
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
    record_class, key, end_tokens, _, provenance, shard = record
    return FrameHeader(FrameKind(record_class), key, length_bytes, checksum, provenance, shard, end_tokens)
