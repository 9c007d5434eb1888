"""The in-process pool."""

from storage.memory.tier import MemoryTier

__all__ = ["MemoryTier"]
