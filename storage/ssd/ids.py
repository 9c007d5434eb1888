"""The ids of records as the index has them."""

from collections.abc import Sequence

from storage.base import KEY_BYTES, RecordId
from storage.ssd.format import ID_BYTES

_LOW_SHARDS = [shard.to_bytes(2, "big") for shard in range(256)]


def id_bytes_of(ids: Sequence[RecordId]) -> list[bytes]:
    """The ids as the index has them: key || shard (u16 big-endian). Raises ValueError on a key of another length."""
    packed = [
        key + (_LOW_SHARDS[shard] if shard < len(_LOW_SHARDS) else shard.to_bytes(2, "big")) for key, shard in ids
    ]
    if set(map(len, packed)) - {ID_BYTES}:
        raise ValueError(
            f"a key is {KEY_BYTES} bytes, got {next(len(one[0]) for one in ids if len(one[0]) != KEY_BYTES)}"
        )
    return packed


def pack_id(record_id: RecordId) -> bytes:
    """One id as the index has it. Raises ValueError on a key of another length."""
    return id_bytes_of([record_id])[0]


def record_id_of(id_bytes: bytes) -> RecordId:
    """The id that the index has as these bytes."""
    return RecordId(id_bytes[:KEY_BYTES], int.from_bytes(id_bytes[KEY_BYTES:], "big"))
