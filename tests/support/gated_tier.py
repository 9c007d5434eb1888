"""A tier whose holds wait at a gate, so that a test decides when work goes on."""

import threading
from collections.abc import Sequence

from storage.base import Hold, RecordId
from storage.memory import MemoryTier


class GatedTier(MemoryTier):
    """An in-process tier. ``gate`` is open until a test clears it; ``waiting`` counts the holds that came to it."""

    gate: threading.Event
    waiting: int

    @classmethod
    def of(cls, tier: MemoryTier) -> "GatedTier":
        """The same tier with a gate."""
        tier.__class__ = cls
        assert isinstance(tier, GatedTier)
        tier.gate, tier.waiting = threading.Event(), 0
        tier.gate.set()
        return tier

    def hold(self, ids: Sequence[RecordId]) -> Hold:
        """See :meth:`Tier.hold`. Waits for the gate."""
        self.waiting += 1
        assert self.gate.wait(30), "nobody opened the gate"
        return super().hold(ids)
