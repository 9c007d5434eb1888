"""The tiers the conformance suite runs over, each behind a factory.

A new tier joins the suite by a subclass of :class:`TierFactory` in :data:`FACTORIES`.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import ClassVar

from redis import Redis

from storage.base import UNKNOWN_CHECKSUM, Record, Tier
from storage.breaker import BreakerTier
from storage.clock import ManualClock
from storage.dram import RedisTier
from storage.dram.header import HEADER_BYTES
from storage.memory import MemoryTier
from storage.routed import RoutedTier
from storage.sealed import SEAL_BYTES, TenantKeys
from storage.sealed.tier import SealedTier
from storage.ssd import SsdTier
from storage.ssd.segments import SegmentFiles
from tests.support.damage import damage_on_disk
from tests.support.faulty import FaultyTier
from tests.support.observers import RecordingObserver
from tests.support.redis_server import let_time_pass, read_bytes, remove_keys

TTL_SECONDS = 3600.0
AMPLE_BUDGET_BYTES = 256 << 20
TEST_TIMEOUT_SECONDS = 10.0
"""For tests that are not about slowness: a busy machine must not make them fail."""
LARGEST_RECORD_BYTES = 20_000_001
"""The largest record the suite writes where the budget is ample."""


class TierFactory(ABC):
    """Makes tiers of one kind for one test, all on the same clock and observer, and closes them after it.

    Args:
        directory: an empty directory of the test's own.
        redis_url: gives a real Redis to the factories that need one, and starts it if it must.
    """

    name: ClassVar[str]
    """The factory's name in the test ids."""
    is_durable: ClassVar[bool]
    """Acknowledged durable writes survive :meth:`reopen`."""
    holds_are_firm: ClassVar[bool]
    """What is held stays readable through replacement, deletion, expiry and eviction."""
    keeps_labels: ClassVar[bool] = True
    """False for a wrapper that uses them itself."""
    knows_checksums: ClassVar[bool] = True
    """False where only a read tells them."""
    overhead_bytes: ClassVar[int] = 0
    """Bytes of a payload as it is kept and accounted, beyond those that were written."""
    small_budget_bytes: ClassVar[int]
    """A budget that 1,000 records of 10 kB do not fit in; 0 when the tier is not given one by its constructor."""

    def __init__(self, directory: Path, redis_url: Callable[[], str]) -> None:
        self.directory = directory
        self.redis_url = redis_url
        self.clock = ManualClock()
        self.observer = RecordingObserver()
        self._made: list[Tier] = []

    def make(self, *, ttl_seconds: float = TTL_SECONDS, budget_bytes: int = AMPLE_BUDGET_BYTES) -> Tier:
        """A new, empty tier."""
        tier = self._make(ttl_seconds, budget_bytes)
        self._made.append(tier)
        return tier

    def kept(self, plain_bytes: int, records: int) -> int:
        """What so many records of so many bytes together are accounted as."""
        return plain_bytes + records * self.overhead_bytes

    def looked_up(self, checksum: int) -> int:
        """What a lookup says of a payload's checksum."""
        return checksum if self.knows_checksums else UNKNOWN_CHECKSUM

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, for the tiers and for whatever server is behind them."""
        self.clock.advance(seconds)

    def reopen(self, tier: Tier) -> Tier:
        """Close a durable tier and open its data again, under the same settings."""
        raise NotImplementedError(f"{type(tier).__name__} keeps nothing over a restart")

    def before_crash(self, tier: Tier, random: Random) -> None:
        """The next write of ``tier`` is one that the process does not survive."""
        raise NotImplementedError(f"{type(tier).__name__} has no medium to be cut off from")

    def recover(self, tier: Tier) -> Tier:
        """Let go of a tier whose process died, and open what its medium has. Memory has all: it is another's."""
        return tier

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


class FaultyMemoryFactory(MemoryFactory):
    """The in-process pool behind a fault-injecting wrapper that injects none."""

    name = "faulty-memory"

    def _make(self, ttl_seconds: float, budget_bytes: int) -> Tier:
        return FaultyTier(super()._make(ttl_seconds, budget_bytes), Random(0), {}, wait=self.clock.advance)


class RedisFactory(TierFactory):
    """The pool on a real Redis, under keys of the test's own. Its clock is the server's: time passes by ageing keys."""

    name = "redis"
    is_durable = False
    holds_are_firm = False
    small_budget_bytes = 0

    def __init__(self, directory: Path, redis_url: Callable[[], str]) -> None:
        super().__init__(directory, redis_url)
        self.prefix = f"kvshelf-test-{os.getpid()}-{os.urandom(6).hex()}:"
        self.client = Redis.from_url(redis_url(), protocol=2)

    def _make(self, ttl_seconds: float, budget_bytes: int) -> Tier:
        return RedisTier(
            url=self.redis_url(),
            clock=self.clock,
            ttl_seconds=ttl_seconds,
            observer=self.observer,
            prefix=self.prefix,
            timeout_seconds=TEST_TIMEOUT_SECONDS,
        )

    def advance(self, seconds: float) -> None:
        """Move the clock, and age every key on the server as much."""
        super().advance(seconds)
        let_time_pass(self.client, self.prefix, seconds)

    def damage(self, tier: Tier, record: Record) -> None:
        """Flip a bit in the middle of the payload."""
        key = b"%b1:{%b.%d}" % (self.prefix.encode(), record.id.key.hex().encode(), record.id.shard)
        offset = HEADER_BYTES + len(record.payload) // 2
        (byte,) = read_bytes(self.client, key, offset, offset)
        self.client.setrange(key, offset, bytes([byte ^ 1]))

    def close(self) -> None:
        """Close the tiers and remove the test's keys."""
        super().close()
        remove_keys(self.client, self.prefix)
        self.client.close()


class BreakerMemoryFactory(MemoryFactory):
    """The in-process pool behind a breaker."""

    name = "breaker-memory"

    def _make(self, ttl_seconds: float, budget_bytes: int) -> Tier:
        return BreakerTier(super()._make(ttl_seconds, budget_bytes), self.clock, jitter=lambda: 0.0)


class BreakerRedisFactory(RedisFactory):
    """The pool on a real Redis behind a breaker, as it is used."""

    name = "breaker-redis"

    def _make(self, ttl_seconds: float, budget_bytes: int) -> Tier:
        return BreakerTier(super()._make(ttl_seconds, budget_bytes), self.clock, jitter=lambda: 0.0)


class SsdFactory(TierFactory):
    """The SSD tier, each in a directory of its own below the test's."""

    name = "ssd"
    is_durable = True
    holds_are_firm = True
    small_budget_bytes = 8 << 20

    def __init__(self, directory: Path, redis_url: Callable[[], str]) -> None:
        super().__init__(directory, redis_url)
        self._settings: dict[Tier, tuple[Path, float, int]] = {}
        self.make_files: Callable[[Path], SegmentFiles] = SegmentFiles

    def reopen(self, tier: Tier) -> Tier:
        """See :meth:`TierFactory.reopen`."""
        tier.close()
        return self._open(*self._settings[tier])

    def _make(self, ttl_seconds: float, budget_bytes: int) -> Tier:
        return self._open(self.directory / f"ssd{len(self._settings)}", ttl_seconds, budget_bytes)

    def _open(self, directory: Path, ttl_seconds: float, budget_bytes: int) -> Tier:
        tier = SsdTier(
            directory,
            clock=self.clock,
            ttl_seconds=ttl_seconds,
            budget_bytes=budget_bytes,
            observer=self.observer,
            max_record_bytes=LARGEST_RECORD_BYTES if budget_bytes == AMPLE_BUDGET_BYTES else 0,
            make_files=self.make_files,
        )
        self._settings[tier] = (directory, ttl_seconds, budget_bytes)
        self._made.append(tier)
        return tier

    def damage(self, tier: Tier, record: Record) -> None:
        """See :func:`tests.support.damage.damage_on_disk`."""
        damage_on_disk(self._settings[tier][0], record.id, len(record.payload))


class SealedMixin(TierFactory):
    """Seals what goes to the tier of the factory it is mixed with, under one key for all."""

    keeps_labels = knows_checksums = False
    overhead_bytes = SEAL_BYTES
    keys = TenantKeys({1: bytes(range(32))})

    def _seal(self, tier: Tier) -> Tier:
        return SealedTier(tier, lambda _: self.keys, os.urandom, self.observer)


class SealedSsdFactory(SealedMixin, SsdFactory):
    """The SSD tier, sealed."""

    name = "sealed-ssd"

    def _open(self, directory: Path, ttl_seconds: float, budget_bytes: int) -> Tier:
        inner = super()._open(directory, ttl_seconds, budget_bytes)
        sealed = self._seal(inner)
        self._settings[sealed] = self._settings[inner]
        return sealed


class SealedRedisFactory(SealedMixin, RedisFactory):
    """The pool on a real Redis, sealed, behind a breaker, as it is used."""

    name = "sealed-redis"

    def _make(self, ttl_seconds: float, budget_bytes: int) -> Tier:
        return BreakerTier(self._seal(super()._make(ttl_seconds, budget_bytes)), self.clock, jitter=lambda: 0.0)


def halves(prefix: bytes) -> str:
    """Which of two shelves a record is on, for tests that route."""
    return "even" if prefix[0] % 2 == 0 else "odd"


class RoutedMemoryFactory(MemoryFactory):
    """Two in-process pools, half of the records and of the budget each."""

    name = "routed-memory"

    def _make(self, ttl_seconds: float, budget_bytes: int) -> Tier:
        shelves = {half: MemoryFactory._make(self, ttl_seconds, budget_bytes // 2) for half in ("even", "odd")}
        return RoutedTier(shelves, halves, prefix_bytes=8)


class RoutedSsdFactory(SsdFactory):
    """Two SSD tiers in one directory, half of the records and of the budget each."""

    name = "routed-ssd"

    def _open(self, directory: Path, ttl_seconds: float, budget_bytes: int) -> Tier:
        largest = LARGEST_RECORD_BYTES if budget_bytes == AMPLE_BUDGET_BYTES else 0
        shelves = {
            half: SsdTier(
                directory / half,
                clock=self.clock,
                ttl_seconds=ttl_seconds,
                budget_bytes=budget_bytes // 2,
                observer=self.observer,
                max_record_bytes=largest,
            )
            for half in ("even", "odd")
        }
        tier = RoutedTier(shelves, halves, prefix_bytes=8)
        self._settings[tier] = (directory, ttl_seconds, budget_bytes)
        self._made.append(tier)
        return tier


class FaultySsdFactory(SsdFactory):
    """The SSD tier behind a fault-injecting wrapper that injects none."""

    name = "faulty-ssd"

    def _open(self, directory: Path, ttl_seconds: float, budget_bytes: int) -> Tier:
        inner = super()._open(directory, ttl_seconds, budget_bytes)
        wrapper = FaultyTier(inner, Random(0), {}, wait=self.clock.advance)
        self._settings[wrapper] = self._settings[inner]
        return wrapper


FACTORIES: tuple[type[TierFactory], ...] = (
    MemoryFactory,
    SsdFactory,
    RedisFactory,
    BreakerMemoryFactory,
    BreakerRedisFactory,
    SealedSsdFactory,
    SealedRedisFactory,
    RoutedMemoryFactory,
    RoutedSsdFactory,
    FaultyMemoryFactory,
    FaultySsdFactory,
)
