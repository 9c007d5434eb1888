"""The messages that carry bulk, ``FrameChunk`` and ``StoreChunk``, written and read by hand.

The bytes are those that protobuf makes, and any protobuf implementation reads them. Protobuf itself would copy each
payload once more on its way out, and once more on its way in, which is what a fetch over gRPC spends its time on.
"""

from collections.abc import Iterable, Iterator

from kvshelf_client.errors import FrameError

CHUNK_BYTES = 1 << 20
"""Frames a message at most. Half as many cost a fifth of the speed; 16 KiB a factor of five."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LENGTH_FIELD, _FELL_BACK_FIELD, _FRAMES_FIELD = 1, 2, 3
_START_FIELD, _UPLOAD_FIELD = 1, 2


def pack_frame_chunk(
    parts: Iterable[bytes | bytearray | memoryview], *, length_bytes: int = 0, fell_back: bool = False
) -> bytes:
    """A ``FrameChunk`` of frames in parts; the two fields are those of a stream's first message."""
    head = b""
    if length_bytes:
        head += _tag(_LENGTH_FIELD, _VARINT) + _varint(length_bytes)
    if fell_back:
        head += _tag(_FELL_BACK_FIELD, _VARINT) + _varint(1)
    return _with_bytes(head, _FRAMES_FIELD, list(parts))


def pack_store_chunk(parts: Iterable[bytes | bytearray | memoryview], *, start: bytes | None = None) -> bytes:
    """A ``StoreChunk`` of frames in parts; ``start`` is a ``StoreStart``, encoded, in a stream's first message."""
    head = b"" if start is None else _tag(_START_FIELD, _BYTES) + _varint(len(start)) + start
    return _with_bytes(head, _UPLOAD_FIELD, list(parts))


def read_frame_chunk(message: bytes) -> tuple[int, bool, memoryview]:
    """``length_bytes``, ``fell_back`` and the frames of a ``FrameChunk``; the frames are not copied.

    Raises:
        FrameError: the bytes are no such message.
    """
    length_bytes, fell_back, frames = 0, False, memoryview(b"")
    for number, value in _fields(message):
        if number == _LENGTH_FIELD and isinstance(value, int):
            length_bytes = value
        elif number == _FELL_BACK_FIELD:
            fell_back = bool(value)
        elif number == _FRAMES_FIELD and isinstance(value, memoryview):
            frames = value
    return length_bytes, fell_back, frames


def read_store_chunk(message: bytes) -> tuple[bytes | None, memoryview]:
    """The encoded ``StoreStart``, if there is one, and the frames of a ``StoreChunk``; the frames are not copied.

    Raises:
        FrameError: the bytes are no such message.
    """
    start, frames = None, memoryview(b"")
    for number, value in _fields(message):
        if number == _START_FIELD and isinstance(value, memoryview):
            start = bytes(value)
        elif number == _UPLOAD_FIELD and isinstance(value, memoryview):
            frames = value
    return start, frames


def _tag(number: int, kind: int) -> bytes:
    return bytes([number << 3 | kind])


def _varint(value: int) -> bytes:
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _with_bytes(head: bytes, number: int, parts: list[bytes | bytearray | memoryview]) -> bytes:
    size = sum(map(len, parts))
    if not size:
        return head
    return b"".join([head, _tag(number, _BYTES), _varint(size), *parts])


def _fields(message: bytes) -> Iterator[tuple[int, int | memoryview]]:
    """Every field of a message: its number and its value. What has a fixed size is skipped: no known field has."""
    view, at = memoryview(message), 0
    while at < len(view):
        tag, at = _read_varint(view, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _read_varint(view, at)
            yield tag >> 3, value
        elif kind == _BYTES:
            size, at = _read_varint(view, at)
            if size > len(view) - at:
                raise FrameError("a message ends inside a field")
            yield tag >> 3, view[at : at + size]
            at += size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise FrameError(f"a message has a field of the unknown kind {kind}")


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    """A whole number at ``at``, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(view):
            break
        group = view[at]
        at += 1
        value |= (group & 0x7F) << shift
        if group < 0x80:
            return value, at
    raise FrameError("a message ends inside a number")
