"""The tiers the conformance suite runs over, each behind a factory.

A new tier joins the suite by a subclass of :class:`TierFactory` in :data:`FACTORIES`.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from storage.base import Record, Tier
from storage.clock import ManualClock
from storage.memory import MemoryTier
from tests.support.observers import RecordingObserver

TTL_SECONDS = 3600.0
AMPLE_BUDGET_BYTES = 256 << 20


class TierFactory(ABC):
    """Makes tiers of one kind for one test, all on the same clock and observer, and closes them after it.

    Args:
        directory: an empty directory of the test's own.
    """

    name: ClassVar[str]
    """The factory's name in the test ids."""
    is_durable: ClassVar[bool]
    """Acknowledged durable writes survive :meth:`reopen`."""
    holds_are_firm: ClassVar[bool]
    """What is held stays readable through replacement, deletion, expiry and eviction."""
    small_budget_bytes: ClassVar[int]
    """A budget that 1,000 records of 10 kB do not fit in; 0 when the tier is not given one by its constructor."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.observer = RecordingObserver()
        self._made: list[Tier] = []

    def make(self, *, ttl_seconds: float = TTL_SECONDS, budget_bytes: int = AMPLE_BUDGET_BYTES) -> Tier:
        """A new, empty tier."""
        tier = self._make(ttl_seconds, budget_bytes)
        self._made.append(tier)
        return tier

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, for the tiers and for whatever server is behind them."""
        self.clock.advance(seconds)

    def reopen(self, tier: Tier) -> Tier:
        """Close a durable tier and open its data again, under the same settings."""
        raise NotImplementedError(f"{type(tier).__name__} keeps nothing over a restart")

    def close(self) -> None:
        """Close every tier that was made."""
        for tier in self._made:
            tier.close()

    @abstractmethod
    def _make(self, ttl_seconds: float, budget_bytes: int) -> Tier: ...

    @abstractmethod
    def damage(self, tier: Tier, record: Record) -> None:
        """Flip a bit of the stored payload of ``record``, which was written to ``tier`` as this very object."""


class MemoryFactory(TierFactory):
    """The in-process pool."""

    name = "memory"
    is_durable = False
    holds_are_firm = True
    small_budget_bytes = 1 << 20

    def _make(self, ttl_seconds: float, budget_bytes: int) -> Tier:
        return MemoryTier(clock=self.clock, ttl_seconds=ttl_seconds, budget_bytes=budget_bytes, observer=self.observer)

    def damage(self, tier: Tier, record: Record) -> None:
        """The pool keeps the payload by reference: damage the writer's own buffer."""
        assert isinstance(record.payload, bytearray)
        record.payload[len(record.payload) // 2] ^= 1


FACTORIES: tuple[type[TierFactory], ...] = (MemoryFactory,)
