"""The SSD tier: an LMDB index over preallocated, recycled, append-only segment files. See docs/on-disk-format.md."""

from storage.ssd.format import UnusableDirectoryError
from storage.ssd.sizing import WhenFull
from storage.ssd.tier import SsdTier

__all__ = ["SsdTier", "UnusableDirectoryError", "WhenFull"]
