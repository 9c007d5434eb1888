"""Framed binary: the media type ``application/vnd.kvshelf.frames.v1``.

A stream is a sequence of frames; a frame is an 80-byte header, little-endian, and its payload::

    offset  size  field
         0     4  magic b"KVSF"
         4     1  wire version, 1
         5     1  kind: 1 block, 2 snapshot, 3 fallback (the payload is a JSON plan)
         6     1  provenance: 1 replayed, 2 exact; 0 in a fallback frame
         7     1  miss: 0 the payload is the record, else the number of a miss reason and the payload is filler
         8     2  shard
        10     2  reserved, 0
        12     4  end_tokens: the end of the block, or the boundary of the snapshot, in tokens from the prompt's start
        16     8  length of the payload in bytes
        24     8  generation of the record, 0 in a frame that is sent up
        32    32  key
        64     8  xxh3_64 of the payload
        72     8  xxh3_64 of the bytes 0..71

A frame that turned into a miss keeps its announced length, filled with zeros, so that a stream's length is known before
its first byte is sent.
"""

import mmap
import struct
from collections import deque
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import NamedTuple

import xxhash

from kvshelf_client.errors import FrameError, HeaderChecksumError, WireVersionError
from kvshelf_client.words import MissReason, Provenance

MEDIA_TYPE = "application/vnd.kvshelf.frames.v1"
WIRE_VERSION = 1
HEADER_BYTES = 80
KEY_BYTES = 32
PROMISED_BYTES = 2 << 20
"""The most memory an assembler takes on a header's word; a longer payload takes memory as it arrives."""
AHEAD_BYTES = 1 << 20
"""What it takes for payloads that are only expected, unless told otherwise."""

_FRAMES_AHEAD = 16
_MAGIC = b"KVSF"
_FIELDS = struct.Struct("<4sBBBBHHIQQ32sQ")
_WHOLE = struct.Struct("<4sBBBBHHIQQ32sQQ")
"""The fields, and their checksum."""
_HEADER_CHECKSUM = struct.Struct("<Q")
_FIELD_BITS = {"shard": 16, "end_tokens": 32, "length_bytes": 64, "generation": 64, "checksum": 64}


class FrameKind(IntEnum):
    """What a frame carries. The first two equal :class:`~kvshelf_client.words.RecordClass`."""

    BLOCK = 1
    SNAPSHOT = 2
    FALLBACK = 3


_KINDS = {int(one): one for one in FrameKind}
_PROVENANCES = {int(one): one for one in Provenance}


class FrameHeader(NamedTuple):
    """The fields of a frame's header; see the module's table."""

    kind: FrameKind
    key: bytes
    length_bytes: int
    checksum: int
    provenance: Provenance | None = None
    shard: int = 0
    end_tokens: int = 0
    generation: int = 0
    miss: MissReason | None = None


class Frame(NamedTuple):
    """A whole frame. ``payload`` belongs to the receiver."""

    header: FrameHeader
    payload: bytearray


class Arrival(NamedTuple):
    """A whole frame as it was put together. ``payload`` belongs to the receiver."""

    header: FrameHeader
    payload: memoryview


def checksum_of(payload: bytes | bytearray | memoryview) -> int:
    """The payload checksum of the wire and of the disk: xxh3_64, seed 0, as an unsigned 64-bit integer."""
    return xxhash.xxh3_64_intdigest(payload)


def check_key(key: bytes, field: str) -> None:
    """Raises ValueError, which names ``field``, unless ``key`` is a key, hash or fingerprint of 32 bytes."""
    if not isinstance(key, (bytes, bytearray, memoryview)):
        raise ValueError(f"{field} has {KEY_BYTES} bytes, got {type(key).__name__}")
    if memoryview(key).nbytes != KEY_BYTES:
        raise ValueError(f"{field} has {KEY_BYTES} bytes, got {memoryview(key).nbytes}")


def check_header(header: FrameHeader) -> None:
    """Raises ValueError, which names the field, when a field does not fit the header's table."""
    check_key(header.key, "key")
    for field, bits in _FIELD_BITS.items():
        value = getattr(header, field)
        if not hasattr(value, "__index__") or not 0 <= value < 1 << bits:
            raise ValueError(f"{field} is a whole number from 0 to {(1 << bits) - 1}, got {value!r}")
    if header.provenance is None and header.kind != FrameKind.FALLBACK:
        raise ValueError("provenance is needed for a block and a snapshot")


def pack_header(header: FrameHeader) -> bytes:
    """Encode a header to its 80 bytes; raises ValueError as :func:`check_header`."""
    if type(header.key) is not bytes or len(header.key) != KEY_BYTES or header.provenance is None:
        check_header(header)
    kind, key, length, checksum, provenance, shard, end_tokens, generation, miss = header
    code = miss.code if miss else 0
    try:
        return pack_fields(kind, bytes(key), length, checksum, provenance or 0, shard, end_tokens, generation, code)
    except struct.error:
        check_header(header)
        raise


def pack_fields(
    kind: int,
    key: bytes,
    length_bytes: int,
    checksum: int,
    provenance: int,
    shard: int,
    end_tokens: int,
    generation: int,
    miss: int = 0,
) -> bytes:
    """Encode a header whose fields are known to be good; raises struct.error where one is out of range."""
    fields = _FIELDS.pack(
        _MAGIC, WIRE_VERSION, kind, provenance, miss, shard, 0, end_tokens, length_bytes, generation, key, checksum
    )
    return fields + _HEADER_CHECKSUM.pack(xxhash.xxh3_64_intdigest(fields))


def unpack_header(data: bytes | bytearray | memoryview) -> FrameHeader:
    """Decode 80 bytes.

    Raises:
        FrameError: wrong length, magic, version, header checksum, kind, provenance or miss reason.
    """
    if len(data) != HEADER_BYTES:
        raise FrameError(f"a frame header has {HEADER_BYTES} bytes, got {len(data)}")
    magic, version, kind, provenance, miss, shard, reserved, end, length, generation, key, checksum, stated = (
        _WHOLE.unpack(data)
    )
    if magic != _MAGIC:
        raise FrameError(f"a frame starts with {_MAGIC!r}, got {bytes(magic)!r}")
    if version != WIRE_VERSION:
        raise WireVersionError(f"wire version {version} is not spoken here, only {WIRE_VERSION}")
    if stated != xxhash.xxh3_64_intdigest(memoryview(data)[: _FIELDS.size]):
        raise HeaderChecksumError("the header's checksum does not match its bytes")
    if reserved:
        raise FrameError(f"the reserved field holds {reserved}, not 0")
    try:
        named, claim = _KINDS.get(kind) or FrameKind(kind), _PROVENANCES.get(provenance)
        if claim is None and (provenance or named is not FrameKind.FALLBACK):
            claim = Provenance(provenance)
        reason = MissReason.from_code(miss) if miss else None
        return FrameHeader(named, key, length, checksum, claim, shard, end, generation, reason)
    except ValueError as error:
        raise FrameError(f"the header names something unknown: {error}") from None


class FrameAssembler:
    """Put frames together from pieces of any size, as they arrive.

    Pieces are fed, or they are received straight into where they belong: into :meth:`room`, of which then so much is
    :meth:`filled`. The frames behind the one that is arriving are expected to be of its kind and length, so that many
    can be received at once; where they are not, what came is copied to where it belongs. A payload never takes more
    memory than has arrived of it, up to ``PROMISED_BYTES``, and the expected ones together no more than is allowed.

    Args:
        max_payload_bytes: a header that announces more is refused before a byte of memory is taken for it.
        allocate: gives the memory for a payload that is no longer than ``PROMISED_BYTES``.
    """

    def __init__(
        self,
        max_payload_bytes: int,
        allocate: Callable[[FrameHeader], memoryview] = lambda header: memoryview(bytearray(header.length_bytes)),
    ) -> None:
        self._max_payload_bytes = max_payload_bytes
        self._allocate = allocate
        self._head = _new_head()
        self._header: FrameHeader | None = None
        self._like: FrameHeader | None = None
        """The last header: what is expected is like it."""
        self._rest = self._head
        """Where the next byte goes: of the header, or of the payload of ``_header``."""
        self._payload = self._rest[:0]
        self._expected: deque[memoryview] = deque()
        """Where the bytes behind those go: payloads and headers in turn, the last one a header."""

    @property
    def at_boundary(self) -> bool:
        """True when no frame is half assembled: the only place where a stream may end."""
        return self._header is None and len(self._rest) == HEADER_BYTES

    def feed(self, chunk: bytes | memoryview) -> Iterator[Arrival]:
        """Take a chunk and yield each frame it completes.

        Raises:
            FrameError: a header is invalid or announces more than ``max_payload_bytes``.
        """
        rest = memoryview(chunk)
        while rest:
            part, rest = rest[: len(self._rest)], rest[len(self._rest) :]
            self._rest[: len(part)] = part
            yield from self.filled(len(part))

    def room(self, ahead_bytes: int = AHEAD_BYTES) -> list[memoryview]:
        """Where the next bytes go, in order: there are some, and they end where it is not known yet what comes next.

        Payloads that are only expected get no more memory than ``ahead_bytes``.
        """
        if self._header is not None:
            self._expect_more(self._header, ahead_bytes)
        return [self._rest, *self._expected]

    def filled(self, count: int) -> Iterator[Arrival]:
        """So many bytes have been put into :meth:`room`: yield each frame that is whole now. Raises as :meth:`feed`."""
        misplaced = b""
        while count:
            step = min(count, len(self._rest))
            self._rest = self._rest[step:]
            count -= step
            if not self._rest and self._header is None and not self._begin(unpack_header(self._head)):
                misplaced, count = b"".join(self._expected)[:count], 0
                self._expected.clear()
            if not self._rest and self._header is not None:
                frame = Arrival(self._header, self._payload)
                self._header = None
                self._rest = self._head = self._expected.popleft() if self._expected else _new_head()
                yield frame
        yield from self.feed(misplaced)

    def _begin(self, header: FrameHeader) -> bool:
        """Whether it is as expected, so that what has come behind it stands where it belongs."""
        length, like = header.length_bytes, self._like
        if length > self._max_payload_bytes:
            raise FrameError(f"a payload of {length} bytes is over {self._max_payload_bytes} bytes")
        is_expected = not self._expected or (
            like is not None and like.length_bytes == length and like.kind is header.kind
        )
        if self._expected and is_expected:
            self._payload = self._expected.popleft()
        else:
            # Fresh pages are given by the system as they are written to.
            self._payload = self._allocate(header) if length <= PROMISED_BYTES else memoryview(mmap.mmap(-1, length))
        self._header = self._like = header
        self._rest = self._payload
        return is_expected

    def _expect_more(self, header: FrameHeader, ahead_bytes: int) -> None:
        """Take memory for frames like the one that is arriving."""
        if not self._expected:
            self._expected.append(_new_head())
        most = min(_FRAMES_AHEAD, ahead_bytes // max(1, header.length_bytes))
        for _ in range(most - len(self._expected) // 2):
            self._expected += (self._allocate(header), _new_head())


def _new_head() -> memoryview:
    return memoryview(bytearray(HEADER_BYTES))
