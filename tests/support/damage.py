"""Damage to records where tiers keep them."""

import mmap
from pathlib import Path

from storage.base import Loaded, RecordId, Tier
from storage.ssd.format import HEADER_BYTES, PAGE_BYTES


def damage(tier: Tier, record_id: RecordId) -> None:
    """Flip a bit of a payload where an in-process tier keeps it."""
    hold = tier.hold([record_id])
    (found,) = hold.read(0, 1)
    assert isinstance(found, Loaded)
    kept = memoryview(found.payload).obj
    assert isinstance(kept, bytearray)
    kept[len(kept) // 2] ^= 1
    hold.release()


def damage_on_disk(directory: Path, record_id: RecordId, length_bytes: int) -> None:
    """Find a record of the SSD tier of a directory by its key, and flip a bit in the middle of its payload."""
    for path in directory.rglob("*.seg"):
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
            start = data.find(record_id.key)
            if start >= 0:
                data[start // PAGE_BYTES * PAGE_BYTES + HEADER_BYTES + length_bytes // 2] ^= 1
                return
    raise AssertionError(f"{record_id} is in no segment")
