"""A tier that fails by seed: whatever may go wrong in or under a tier, at given rates, around any tier.

What it answers is always what the contract promises of a tier in trouble, so whoever uses tiers must cope with it. The
tiers' own defence against a bad medium is tested where their media are damaged, by ``TierFactory.damage`` and by
:mod:`tests.support.power_cut`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from random import Random

from kvshelf_client.frames import checksum_of
from kvshelf_client.words import MissReason
from storage.base import (
    Entry,
    Hold,
    Loaded,
    Miss,
    Page,
    Payload,
    Record,
    RecordId,
    Tier,
    TierAwayError,
    Usage,
    Wiped,
    WriteOutcome,
    WriteResult,
)


class Fault(StrEnum):
    """What may go wrong in a call."""

    LATENCY = "latency"
    """It takes long."""
    ERROR = "error"
    """It fails, and nothing was done."""
    LOST_ANSWER = "lost_answer"
    """It is done, and fails on the way back."""
    TRUNCATION = "truncation"
    """A payload ends early: on the way in, or on the medium."""
    BIT_FLIP = "bit_flip"
    """A bit of a payload is wrong: on the way in, or on the medium."""
    CRASH = "crash"
    """The process dies in the middle of a write: before, between, or after its records, and before the answer."""


LATENCIES_SECONDS = (0.01, 0.1, 1.0, 30.0)


class CrashError(Exception):
    """The process died here. What called must let go of everything, and open again what the medium has."""


class FaultyTier(Tier):
    """A tier whose calls fail.

    Args:
        tier: the tier itself.
        random: what fails when follows from it.
        rates: how often each fault happens, from 0 to 1 a call; none where it is not named.
        wait: lets seconds pass: a clock's ``advance``, or a real wait.
        before_crash: called ahead of a write that the process does not survive; a medium that can be cut in the middle
            of it arms itself. Without one a part of the records is written.
    """

    def __init__(
        self,
        tier: Tier,
        random: Random,
        rates: Mapping[Fault, float],
        *,
        wait: Callable[[float], object],
        before_crash: Callable[[], None] | None = None,
    ) -> None:
        self.name = tier.name
        self.seen: Counter[Fault] = Counter()
        self.dropped: list[RecordId] = []
        """Records that were lost to damage on the medium."""
        self._tier, self._random, self._rates = tier, random, rates
        self._wait, self._before_crash = wait, before_crash

    @property
    def is_durable(self) -> bool:
        """As the tier."""
        return self._tier.is_durable

    def lookup(self, ids: Sequence[RecordId]) -> list[Entry | Miss]:
        """See :meth:`Tier.lookup`."""
        return _down(ids) if self._fails() else self._tier.lookup(ids)

    def hold(self, ids: Sequence[RecordId]) -> Hold:
        """See :meth:`Tier.hold`."""
        if self._fails():
            return FaultyHold(self, None, _down(ids))
        hold = self._tier.hold(ids)
        return FaultyHold(self, hold, hold.entries)

    def write(self, records: Sequence[Record], *, durable: bool) -> list[WriteResult]:
        """See :meth:`Tier.write`."""
        down = [WriteResult(record.id, WriteOutcome.TIER_DOWN) for record in records]
        if self._fails():
            return down
        if records and self._happens(Fault.CRASH):
            self._crash(records, durable=durable)
        damaged = [record._replace(payload=self.damaged(record.payload)) for record in records]
        results = self._tier.write(damaged, durable=durable)
        return down if self._happens(Fault.LOST_ANSWER) else results

    def touch(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.touch`."""
        return 0 if self._fails() else self._tier.touch(ids)

    def delete(self, ids: Sequence[RecordId], *, cause: str = "deleted") -> int:
        """See :meth:`Tier.delete`."""
        if self._fails():
            return 0
        count = self._tier.delete(ids, cause=cause)
        return 0 if self._happens(Fault.LOST_ANSWER) else count

    def scan(self, prefix: bytes, cursor: bytes = b"", limit: int = 1024) -> Page:
        """See :meth:`Tier.scan`."""
        if self._fails():
            raise TierAwayError(self.name)
        return self._tier.scan(prefix, cursor, limit)

    def erase(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.erase`."""
        if self._fails():
            return 0
        count = self._tier.erase(ids)
        return 0 if self._happens(Fault.LOST_ANSWER) else count

    def wipe(self, cursor: int = 0) -> Wiped:
        """See :meth:`Tier.wipe`."""
        if self._fails():
            raise TierAwayError(self.name)
        return self._tier.wipe(cursor)

    def maintain(self) -> None:
        """See :meth:`Tier.maintain`."""
        if not self._fails():
            self._tier.maintain()

    def usage(self) -> Usage:
        """See :meth:`Tier.usage`."""
        return self._tier.usage()

    def is_up(self) -> bool:
        """See :meth:`Tier.is_up`."""
        return self._tier.is_up()

    def trouble(self) -> str | None:
        """See :meth:`Tier.trouble`."""
        return self._tier.trouble()

    def check_integrity(self) -> None:
        """See :meth:`Tier.check_integrity`."""
        self._tier.check_integrity()

    def close(self) -> None:
        """See :meth:`Tier.close`."""
        self._tier.close()

    def damaged(self, payload: Payload) -> Payload:
        """A payload, that may have come to harm."""
        if not len(payload):
            return payload
        if self._happens(Fault.TRUNCATION):
            return bytes(payload[: self._random.randrange(len(payload))])
        if self._happens(Fault.BIT_FLIP):
            flipped = bytearray(payload)
            flipped[self._random.randrange(len(flipped))] ^= 1 << self._random.randrange(8)
            return flipped
        return payload

    def read(self, hold: Hold, start: int, end: int) -> list[Loaded | Miss]:
        """Read from a hold of the tier. What was damaged on the medium fails its check, and is dropped."""
        if self._fails():
            return [
                Miss(one.id, MissReason.TIER_DOWN) if isinstance(one, Entry) else one for one in hold.entries[start:end]
            ]
        return [self._checked(one) if isinstance(one, Loaded) else one for one in hold.read(start, end)]

    def _checked(self, loaded: Loaded) -> Loaded | Miss:
        payload = self.damaged(loaded.payload)
        if payload is loaded.payload:
            return loaded
        assert checksum_of(payload) != loaded.entry.checksum, "a damaged payload passes its check"
        self._tier.delete([loaded.entry.id], cause="corrupt")
        self.dropped.append(loaded.entry.id)
        return Miss(loaded.entry.id, MissReason.CORRUPT)

    def _fails(self) -> bool:
        if self._happens(Fault.LATENCY):
            self._wait(self._random.choice(LATENCIES_SECONDS))
        return self._happens(Fault.ERROR)

    def _crash(self, records: Sequence[Record], *, durable: bool) -> None:
        if self._before_crash is not None:
            self._before_crash()
            self._tier.write(records, durable=durable)
        else:
            self._tier.write(records[: self._random.randint(0, len(records))], durable=durable)
        raise CrashError

    def _happens(self, fault: Fault) -> bool:
        rate = self._rates.get(fault, 0.0)
        happens = rate > 0 and self._random.random() < rate
        self.seen[fault] += happens
        return happens


class FaultyHold(Hold):
    """A hold whose reads fail, too. Of a tier that could not be asked there is none, and its misses are all."""

    def __init__(self, tier: FaultyTier, hold: Hold | None, entries: Sequence[Entry | Miss]) -> None:
        self.entries = [*entries]
        self._tier, self._hold = tier, hold
        self._is_released = False

    def read(self, start: int, end: int) -> list[Loaded | Miss]:
        """See :meth:`Hold.read`."""
        if self._is_released:
            raise ValueError("this hold was released")
        if self._hold is None:
            return [one for one in self.entries[start:end] if isinstance(one, Miss)]
        return self._tier.read(self._hold, start, end)

    def keep(self, start: int, end: int) -> None:
        """See :meth:`Hold.keep`."""
        self.entries = self.entries[start:end]
        if self._hold is not None:
            self._hold.keep(start, end)

    def release(self) -> None:
        """See :meth:`Hold.release`."""
        self._is_released = True
        if self._hold is not None:
            self._hold.release()


def _down(ids: Sequence[RecordId]) -> list[Entry | Miss]:
    return [Miss(record_id, MissReason.TIER_DOWN) for record_id in ids]
