"""Single records by key, for tools and tests and for engines that know what they want: look, read, renew, delete."""

from collections.abc import Sequence

from kvshelf_client.words import MissReason, RecordClass
from service.namespaces import Namespace
from service.shelf.parts import Parts
from storage.base import Entry, Loaded, Miss, RecordId, Tier

ATTEMPTS = 2


class TierDownError(Exception):
    """The tier cannot be asked, or was away in between: nothing is known of the records. Try again."""


def tier_of(parts: Parts, kind: RecordClass) -> Tier:
    """The tier that keeps a class of records."""
    return parts.blocks if kind is RecordClass.BLOCK else parts.snapshots


def look(parts: Parts, namespace: Namespace, kind: RecordClass, key: bytes, shard: int) -> Entry | Miss:
    """What is known of a record. Renews nothing.

    Raises:
        TierDownError: see there.
    """
    (found,) = _look(tier_of(parts, kind), [namespace.record_id(key, shard)])
    return found


def read(parts: Parts, namespace: Namespace, kind: RecordClass, key: bytes, shard: int) -> Loaded | Miss:
    """A record with its verified payload; its life is renewed.

    Raises:
        TierDownError: see there.
    """
    tier = tier_of(parts, kind)
    hold = tier.hold([namespace.record_id(key, shard)])
    try:
        (found,) = tier.use(hold, 0, 1)
    finally:
        hold.release()
    if isinstance(found, Miss) and found.reason is MissReason.TIER_DOWN:
        raise _down(tier)
    return found


def touch(parts: Parts, namespace: Namespace, kind: RecordClass, keys: Sequence[bytes]) -> int:
    """Renew the life of records, all shards of each; returns how many records that were.

    Raises:
        TierDownError: not all that are there were renewed.
    """
    tier, ids = tier_of(parts, kind), _all_shards(namespace, keys)
    for _ in range(ATTEMPTS):
        renewed = tier.touch(ids)
        # A tier in trouble answers 0 as if nothing were there, so a look tells the two apart.
        if renewed == len(ids) or renewed >= len(_live(_look(tier, ids))):
            return renewed
    raise _down(tier)


def delete(parts: Parts, namespace: Namespace, kind: RecordClass, keys: Sequence[bytes]) -> int:
    """Forget records, all shards of each; returns how many records that were.

    Raises:
        TierDownError: not all of them are known to be gone.
    """
    return _delete(tier_of(parts, kind), _all_shards(namespace, keys))


def delete_shard(parts: Parts, namespace: Namespace, kind: RecordClass, key: bytes, shard: int) -> bool:
    """Forget one record of one shard; says whether it was there.

    Raises:
        TierDownError: it is not known to be gone.
    """
    return _delete(tier_of(parts, kind), [namespace.record_id(key, shard)]) == 1


def _delete(tier: Tier, ids: Sequence[RecordId]) -> int:
    """Delete, and look afterwards: a tier in trouble answers 0 as if nothing were there."""
    deleted = 0
    for _ in range(ATTEMPTS):
        deleted += tier.delete(ids)
        ids = [entry.id for entry in _live(_look(tier, ids))]
        if not ids:
            return deleted
    raise _down(tier)


def _look(tier: Tier, ids: Sequence[RecordId]) -> list[Entry | Miss]:
    """Look records up. Raises TierDownError when the tier cannot say of any of them."""
    found = tier.lookup(ids)
    if any(isinstance(one, Miss) and one.reason is MissReason.TIER_DOWN for one in found):
        raise _down(tier)
    return found


def _live(found: Sequence[Entry | Miss]) -> list[Entry]:
    return [one for one in found if isinstance(one, Entry)]


def _down(tier: Tier) -> TierDownError:
    return TierDownError(f"the {tier.name} tier does not serve")


def _all_shards(namespace: Namespace, keys: Sequence[bytes]) -> list[RecordId]:
    return [namespace.record_id(key, shard) for key in dict.fromkeys(keys) for shard in range(namespace.shards)]
