"""Single records by key, for tools and tests and for engines that know what they want: look, read, renew, delete."""

from collections.abc import Sequence

from kvshelf_client.words import RecordClass
from service.namespaces import Namespace
from service.shelf.parts import Parts
from storage.base import Entry, Loaded, Miss, RecordId, Tier


def tier_of(parts: Parts, kind: RecordClass) -> Tier:
    """The tier that keeps a class of records."""
    return parts.blocks if kind is RecordClass.BLOCK else parts.snapshots


def look(parts: Parts, namespace: Namespace, kind: RecordClass, key: bytes, shard: int) -> Entry | Miss:
    """What is known of a record. Renews nothing."""
    (found,) = tier_of(parts, kind).lookup([namespace.record_id(key, shard)])
    return found


def read(parts: Parts, namespace: Namespace, kind: RecordClass, key: bytes, shard: int) -> Loaded | Miss:
    """A record with its verified payload; its life is renewed."""
    tier = tier_of(parts, kind)
    hold = tier.hold([namespace.record_id(key, shard)])
    try:
        (found,) = hold.read(0, 1)
    finally:
        hold.release()
    if isinstance(found, Loaded):
        tier.touch([found.entry.id])
    return found


def touch(parts: Parts, namespace: Namespace, kind: RecordClass, keys: Sequence[bytes]) -> int:
    """Renew the life of records, all shards of each; returns how many records that were."""
    return tier_of(parts, kind).touch(_all_shards(namespace, keys))


def delete(parts: Parts, namespace: Namespace, kind: RecordClass, keys: Sequence[bytes]) -> int:
    """Forget records, all shards of each; returns how many records that were."""
    return tier_of(parts, kind).delete(_all_shards(namespace, keys))


def delete_shard(parts: Parts, namespace: Namespace, kind: RecordClass, key: bytes, shard: int) -> bool:
    """Forget one record of one shard; says whether it was there."""
    return tier_of(parts, kind).delete([namespace.record_id(key, shard)]) == 1


def _all_shards(namespace: Namespace, keys: Sequence[bytes]) -> list[RecordId]:
    return [namespace.record_id(key, shard) for key in keys for shard in range(namespace.shards)]
