"""Damage to records where in-process tiers keep them."""

from storage.base import Loaded, RecordId, Tier


def damage(tier: Tier, record_id: RecordId) -> None:
    """Flip a bit of a payload where an in-process tier keeps it."""
    hold = tier.hold([record_id])
    (found,) = hold.read(0, 1)
    assert isinstance(found, Loaded)
    kept = memoryview(found.payload).obj
    assert isinstance(kept, bytearray)
    kept[len(kept) // 2] ^= 1
    hold.release()
