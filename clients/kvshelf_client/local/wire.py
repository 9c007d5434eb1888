"""The local protocol: what a service and an engine on the same machine say to each other over a UNIX socket.

docs/local-path.md has it byte by byte. A message is a header of 16 bytes, little-endian, and its body; descriptors that
belong to a message travel with its header::

    offset  size  field
         0     4  magic b"KVSL"
         4     1  protocol version, 1
         5     1  kind of message
         6     2  how many descriptors come with it
         8     8  length of the body in bytes
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from kvshelf_client.errors import FrameError
from kvshelf_client.words import Provenance

PROTOCOL_VERSION = 1
HEADER_BYTES = 16
INSTANCE_BYTES = 16
RANGE_BYTES = 80
MAX_DESCRIPTORS = 250
"""Most descriptors with one message; the kernel takes 253."""
MAX_RANGES = 4096
"""Most ranges in one message."""
MAX_RANGES_BYTES = 8 + MAX_RANGES * RANGE_BYTES
"""The longest body of RANGES."""
MAX_REQUEST_BYTES = 8192
"""The longest body of what a client sends."""
MAX_TEXT_BYTES = 1024
"""The longest text of a refusal."""

_MAGIC = b"KVSL"
_HEADER = struct.Struct("<4sBBHQ")
_OPEN = struct.Struct("<iBB2x")
_READ = struct.Struct("<HBxII")
_RANGES = struct.Struct("<B3xI")
_RANGE = struct.Struct("<32sQQQQIHHB7x")
pack_range = _RANGE.pack
"""From the fields of a :data:`Range` to its 80 bytes."""

_LIFE = struct.Struct("<d")
_REFUSAL = struct.Struct("<H")
_ALL_SHARDS = -1
_LAST, _FELL_BACK = 1, 2


class Kind(IntEnum):
    """What a message is: HELLO, OPEN, READ and RENEW are a client's, the others are answers."""

    HELLO = 1
    WELCOME = 2
    OPEN = 3
    RANGES = 4
    READ = 5
    FRAMES = 6
    RENEW = 7
    ALIVE = 8
    REFUSED = 9


class Refusal(IntEnum):
    """Why a service does not do what it was asked."""

    MALFORMED = 1
    """What came is no message, or not one for this moment. The service hangs up."""
    VERSION = 2
    """The protocol version is not spoken. The service hangs up."""
    INSTANCE = 3
    """This is another service than the one that was asked for. The service hangs up."""
    DENIED = 4
    """Another user, no token that is taken, or one that may not read. The service hangs up."""
    BUSY = 5
    """There are as many clients as there may be. The service hangs up."""
    UNKNOWN_LEASE = 6
    """No such lease: never given, released, or over."""
    OUT_OF_RANGE = 7
    """No such shard, or no such block."""
    ELSEWHERE = 8
    """What the lease holds is not in files, or in files that this client may not have: use another face."""

    @property
    def ends_connection(self) -> bool:
        """Whether the service hangs up after it."""
        return self <= Refusal.BUSY


class Header(NamedTuple):
    """The header of a message."""

    kind: Kind
    descriptors: int
    length_bytes: int


class Open(NamedTuple):
    """Ask for what a lease holds of one shard, or of all (None). ``fall_back`` asks for the fallback's blocks.

    ``request_id`` is what this and what follows until the next OPEN is called in the service's log; empty for none.
    """

    lease_id: str
    shard: int | None
    fall_back: bool
    request_id: str = ""


class Read(NamedTuple):
    """Ask for so many ``blocks`` of one shard as frames, from number ``first`` on, as OPEN has them in order.

    ``of_fallback`` says that the answer had fallen back.
    """

    lease_id: str
    shard: int
    first: int
    blocks: int
    of_fallback: bool


Range = tuple[bytes, int, int, int, int, int, int, int, int]
"""A held block, as it is packed: key, offset of the payload, its length, generation, checksum, end of the block in
tokens, shard, descriptor of the same message by position, provenance. Plain, because there may be thousands."""

KEY: Final = 0
OFFSET: Final = 1
LENGTH: Final = 2
GENERATION: Final = 3
CHECKSUM: Final = 4
SHARD: Final = 6
FILE: Final = 7
PROVENANCE: Final = 8


class Ranges(NamedTuple):
    """A part of the answer to OPEN. ``is_last`` ends the answer; ``fell_back`` says that the fallback is sent."""

    is_last: bool
    fell_back: bool
    ranges: list[Range]


def pack_header(kind: Kind, length_bytes: int, descriptors: int = 0) -> bytes:
    """The 16 bytes ahead of a body."""
    return _HEADER.pack(_MAGIC, PROTOCOL_VERSION, kind, descriptors, length_bytes)


def unpack_header(data: bytes | bytearray) -> Header:
    """Decode 16 bytes.

    Raises:
        VersionError: another version of the protocol.
        FrameError: anything else that is no header.
    """
    magic, version, kind, descriptors, length_bytes = _HEADER.unpack(data)
    if magic != _MAGIC:
        raise FrameError(f"a message starts with {_MAGIC!r}, got {magic!r}")
    if version != PROTOCOL_VERSION:
        raise VersionError(f"version {version} of the local protocol is not spoken here, only {PROTOCOL_VERSION}")
    try:
        return Header(Kind(kind), descriptors, length_bytes)
    except ValueError:
        raise FrameError(f"{kind} is no kind of message") from None


class VersionError(FrameError):
    """A message of another version of the local protocol."""


def pack_hello(instance: bytes, token: str | None) -> bytes:
    """HELLO: the instance the client wants to talk to, and its token where it has one."""
    return instance + (token or "").encode()


def unpack_hello(body: bytes | bytearray) -> tuple[bytes, str | None]:
    """Instance and token of a HELLO. Raises FrameError."""
    if len(body) < INSTANCE_BYTES:
        raise FrameError(f"a hello has at least {INSTANCE_BYTES} bytes, got {len(body)}")
    return bytes(body[:INSTANCE_BYTES]), _text(body[INSTANCE_BYTES:]) or None


def pack_open(ask: Open) -> bytes:
    """OPEN."""
    shard, request_id = _ALL_SHARDS if ask.shard is None else ask.shard, ask.request_id.encode()
    return _OPEN.pack(shard, ask.fall_back, len(request_id)) + request_id + ask.lease_id.encode()


def unpack_open(body: bytes | bytearray) -> Open:
    """Decode an OPEN. Raises FrameError."""
    if len(body) < _OPEN.size:
        raise FrameError(f"an open has at least {_OPEN.size} bytes, got {len(body)}")
    shard, flags, id_bytes = _OPEN.unpack_from(body)
    lease_at = _OPEN.size + id_bytes
    if shard < _ALL_SHARDS or flags > 1 or len(body) < lease_at:
        raise FrameError(f"an open of shard {shard} with flags {flags} and an id of {id_bytes} bytes has no meaning")
    lease_id, request_id = _text(body[lease_at:]), _text(body[_OPEN.size : lease_at])
    return Open(lease_id, None if shard == _ALL_SHARDS else shard, bool(flags), request_id)


def pack_read(ask: Read) -> bytes:
    """READ."""
    return _READ.pack(ask.shard, ask.of_fallback, ask.first, ask.blocks) + ask.lease_id.encode()


def unpack_read(body: bytes | bytearray) -> Read:
    """Decode a READ. Raises FrameError."""
    if len(body) < _READ.size:
        raise FrameError(f"a read has at least {_READ.size} bytes, got {len(body)}")
    shard, flags, first, blocks = _READ.unpack_from(body)
    if flags > 1:
        raise FrameError(f"a read with flags {flags} has no meaning")
    return Read(_text(body[_READ.size :]), shard, first, blocks, bool(flags))


def pack_renew(lease_id: str) -> bytes:
    """RENEW: let a lease live on from now, and prove that it lived until now."""
    return lease_id.encode()


def unpack_renew(body: bytes | bytearray) -> str:
    """The lease of a RENEW. Raises FrameError."""
    return _text(body)


def pack_alive(ttl_seconds: float) -> bytes:
    """ALIVE: the lease lives for that long from now on."""
    return _LIFE.pack(ttl_seconds)


def unpack_alive(body: bytes | bytearray) -> float:
    """The seconds of an ALIVE. Raises FrameError."""
    if len(body) != _LIFE.size:
        raise FrameError(f"alive has {_LIFE.size} bytes, got {len(body)}")
    return float(_LIFE.unpack(body)[0])


def pack_refusal(reason: Refusal, text: str) -> bytes:
    """REFUSED: why, for programs and for people."""
    return _REFUSAL.pack(reason) + text.encode()[:MAX_TEXT_BYTES]


def unpack_refusal(body: bytes | bytearray) -> tuple[Refusal, str]:
    """Reason and text. Raises FrameError."""
    if len(body) < _REFUSAL.size:
        raise FrameError(f"a refusal has at least {_REFUSAL.size} bytes, got {len(body)}")
    (code,) = _REFUSAL.unpack_from(body)
    try:
        return Refusal(code), body[_REFUSAL.size :].decode(errors="replace")
    except ValueError:
        raise FrameError(f"{code} is no reason for a refusal") from None


def pack_ranges(packed: Sequence[bytes], *, is_last: bool, fell_back: bool) -> bytes:
    """RANGES, of ranges that :data:`pack_range` has packed."""
    return b"".join((_RANGES.pack(_LAST * is_last + _FELL_BACK * fell_back, len(packed)), *packed))


def unpack_ranges(body: bytes | bytearray, descriptors: int) -> Ranges:
    """Decode RANGES that came with so many descriptors.

    Raises:
        FrameError: a length, flag, file, provenance or miss that cannot be.
    """
    if len(body) < _RANGES.size:
        raise FrameError(f"ranges have at least {_RANGES.size} bytes, got {len(body)}")
    flags, count = _RANGES.unpack_from(body)
    if flags > _LAST + _FELL_BACK or count > MAX_RANGES or len(body) != _RANGES.size + count * RANGE_BYTES:
        raise FrameError(f"{len(body)} bytes with flags {flags} are not {count} ranges")
    found = list(_RANGE.iter_unpack(memoryview(body)[_RANGES.size :]))
    if not {one[PROVENANCE] for one in found} <= _PROVENANCES or any(one[FILE] >= descriptors for one in found):
        raise FrameError(f"a range has a provenance that is none, or is in none of {descriptors} files")
    return Ranges(bool(flags & _LAST), bool(flags & _FELL_BACK), found)


_PROVENANCES = {int(one) for one in Provenance}


def _text(data: bytes | bytearray) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise FrameError("a text is no UTF-8") from None
