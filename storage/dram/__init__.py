"""The DRAM pool on Redis."""

from storage.dram.tier import RedisTier

__all__ = ["RedisTier"]
