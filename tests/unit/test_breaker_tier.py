"""The breaker around a tier that is ill when told so."""

from collections.abc import Callable, Sequence

import pytest

from kvshelf_client.circuit import BreakerState
from kvshelf_client.words import MissReason
from storage.base import Entry, Hold, Loaded, Miss, Record, RecordId, Usage, WriteOutcome, WriteResult
from storage.breaker import BreakerTier
from storage.clock import ManualClock
from storage.memory import MemoryTier
from tests.support.records import look, make_id, make_record, make_records, reasons

DOWN = MissReason.TIER_DOWN
CLOSED, OPEN = BreakerState.CLOSED, BreakerState.OPEN


class IllTier(MemoryTier):
    """A pool that, while ``is_ill``, answers as one that is out of reach; counts the calls that reach it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock, ttl_seconds=3600, budget_bytes=1 << 20)
        self.is_ill = False
        self.calls = 0

    def _asked(self) -> bool:
        self.calls += 1
        return self.is_ill

    def lookup(self, ids: Sequence[RecordId]) -> list[Entry | Miss]:
        return [Miss(one, DOWN) for one in ids] if self._asked() else super().lookup(ids)

    def hold(self, ids: Sequence[RecordId]) -> Hold:
        return IllHold(self, super().hold(ids), self._asked())

    def write(self, records: Sequence[Record], *, durable: bool) -> list[WriteResult]:
        if self._asked():
            return [WriteResult(record.id, WriteOutcome.TIER_DOWN) for record in records]
        return super().write(records, durable=durable)

    def touch(self, ids: Sequence[RecordId]) -> int:
        return 0 if self._asked() else super().touch(ids)

    def delete(self, ids: Sequence[RecordId], *, cause: str = "deleted") -> int:
        return 0 if self._asked() else super().delete(ids, cause=cause)

    def maintain(self) -> None:
        self._asked()

    def usage(self) -> Usage:
        self._asked()
        return super().usage()

    def is_up(self) -> bool:
        return not self.is_ill


class IllHold(Hold):
    """A hold of an :class:`IllTier`."""

    def __init__(self, tier: IllTier, hold: Hold, is_ill: bool) -> None:
        self.entries = [Miss(entry.id, DOWN) for entry in hold.entries] if is_ill else hold.entries
        self._tier, self._hold = tier, hold

    def read(self, start: int, end: int) -> list[Loaded | Miss]:
        loaded = self._hold.read(start, end)
        return [Miss(one.id, DOWN) for one in self.entries[start:end]] if self._tier._asked() else loaded

    def keep(self, start: int, end: int) -> None:
        self._hold.keep(start, end)
        self.entries = self._hold.entries

    def release(self) -> None:
        self._hold.release()


class Ward:
    """A breaker that opens at the second fault, around an ill tier that holds record 1."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.inner = IllTier(self.clock)
        self.inner.write(make_records([1]), durable=False)
        self.tier = BreakerTier(self.inner, self.clock, faults_to_open=2, jitter=lambda: 0.0)

    def fall_ill(self) -> None:
        """Let the tier be ill, and the breaker know."""
        self.inner.is_ill = True
        look(self.tier, 1)
        look(self.tier, 1)
        assert self.tier.state is OPEN
        self.inner.calls = 0


@pytest.fixture
def ward() -> Ward:
    return Ward()


@pytest.mark.parametrize("verb", ["lookup", "hold", "read", "write", "touch", "delete", "maintain"])
def test_two_faults_of_any_verb_open_it(ward: Ward, verb: str) -> None:
    hold = ward.tier.hold([make_id(1)])
    calls: dict[str, Callable[[], object]] = {
        "lookup": lambda: ward.tier.lookup([make_id(1)]),
        "hold": lambda: ward.tier.hold([make_id(1)]),
        "read": lambda: hold.read(0, 1),
        "write": lambda: ward.tier.write(make_records([2]), durable=False),
        "touch": lambda: ward.tier.touch([make_id(1)]),
        "delete": lambda: ward.tier.delete([make_id(1)]),
        "maintain": lambda: ward.tier.maintain(),
    }
    ward.inner.is_ill = True
    calls[verb]()
    assert ward.tier.state is CLOSED
    calls[verb]()
    assert ward.tier.state is OPEN
    assert not ward.tier.is_up()


def test_while_open_the_tier_is_left_alone(ward: Ward) -> None:
    hold = ward.tier.hold([make_id(1), make_id(99)])
    usage = ward.tier.usage()
    ward.fall_ill()
    assert look(ward.tier, 1, 2) == [DOWN, DOWN]
    assert [one.outcome for one in ward.tier.write(make_records([1, 2]), durable=True)] == [WriteOutcome.TIER_DOWN] * 2
    assert ward.tier.touch([make_id(1)]) == ward.tier.delete([make_id(1)]) == 0
    ward.tier.maintain()
    assert ward.tier.usage() == usage
    assert reasons(hold.read(0, 2)) == [DOWN, MissReason.NEVER_STORED]
    blind = ward.tier.hold([make_id(1), make_id(2)])
    assert blind.entries == [Miss(make_id(1), DOWN), Miss(make_id(2), DOWN)]
    blind.keep(1, 2)
    assert blind.read(0, 1) == [Miss(make_id(2), DOWN)]
    blind.release()
    hold.release()
    for released in (blind, hold):
        with pytest.raises(ValueError):
            released.read(0, 1)
    assert ward.inner.calls == 0
    assert not ward.tier.is_up()


def test_it_closes_by_itself_when_the_tier_is_well(ward: Ward) -> None:
    ward.fall_ill()
    ward.clock.advance(0.501)
    assert look(ward.tier, 1) == [DOWN], "the probe finds it ill"
    ward.inner.is_ill = False
    assert look(ward.tier, 1) == [DOWN], "and nobody asks again before the delay is over"
    assert ward.inner.calls == 1
    ward.clock.advance(1.001)
    assert look(ward.tier, 1) == [None]
    assert ward.tier.state is CLOSED
    assert ward.tier.is_up()


def test_upkeep_alone_closes_it(ward: Ward) -> None:
    ward.fall_ill()
    ward.inner.is_ill = False
    ward.tier.maintain()
    assert ward.tier.state is OPEN
    ward.clock.advance(0.501)
    ward.tier.maintain()
    assert ward.tier.state is CLOSED


def test_neither_nothing_nor_usage_is_a_probe(ward: Ward) -> None:
    ward.fall_ill()
    ward.clock.advance(0.501)
    hold = ward.tier.hold([])
    assert hold.read(0, 0) == ward.tier.lookup([]) == []
    assert ward.tier.write([], durable=True) == []
    assert ward.tier.touch([]) == ward.tier.delete([]) == 0
    ward.tier.usage()
    assert ward.tier.state is OPEN


def test_neither_usage_nor_an_old_miss_counts_as_a_fault(ward: Ward) -> None:
    ward.inner.is_ill = True
    hold = ward.tier.hold([make_id(1)])
    for _ in range(5):
        ward.tier.usage()
        assert reasons(hold.read(0, 1)) == [DOWN]
    assert ward.tier.state is CLOSED
    look(ward.tier, 1)
    assert ward.tier.state is OPEN


def test_a_full_or_refused_write_is_no_fault(ward: Ward) -> None:
    for _ in range(5):
        outcomes = ward.tier.write([make_record(5, size=2 << 20), make_record(6)._replace(checksum=0)], durable=False)
        assert [one.outcome for one in outcomes] == [WriteOutcome.FULL, WriteOutcome.CORRUPT]
    assert ward.tier.state is CLOSED


def test_a_programming_error_passes_through(ward: Ward) -> None:
    ward.inner.close()
    for _ in range(5):
        with pytest.raises(ValueError):
            ward.tier.write(make_records([3]), durable=False)
    assert ward.tier.state is CLOSED
