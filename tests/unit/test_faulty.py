"""The fault-injecting tier: each fault does what it says, and nothing else; equal seeds fail alike."""

from random import Random

import pytest

from kvshelf_client.words import MissReason
from storage.base import Loaded, WriteOutcome
from storage.clock import ManualClock
from storage.memory import MemoryTier
from tests.support.faulty import LATENCIES_SECONDS, CrashError, Fault, FaultyTier
from tests.support.records import fetch, ids_of, look, make_id, make_records

DOWN, CORRUPT, NEVER = MissReason.TIER_DOWN, MissReason.CORRUPT, MissReason.NEVER_STORED
RECORDS = make_records(range(4))


class Ward:
    """A memory tier with three records, and a faulty one around it."""

    def __init__(self, *faults: Fault, rate: float = 1.0, seed: int = 0) -> None:
        self.clock = ManualClock()
        self.inner = MemoryTier(clock=self.clock, ttl_seconds=3600, budget_bytes=1 << 20)
        self.inner.write(RECORDS[:3], durable=True)
        self.tier = FaultyTier(self.inner, Random(seed), dict.fromkeys(faults, rate), wait=self.clock.advance)


def test_without_faults_everything_goes_through() -> None:
    tier = Ward().tier
    assert tier.write(RECORDS[3:], durable=True)[0].outcome is WriteOutcome.STORED
    assert fetch(tier, ids_of(RECORDS)) == [record.payload for record in RECORDS]
    assert tier.delete([make_id(1)]) == 1
    assert not +tier.seen


def test_latency_takes_time_and_changes_nothing() -> None:
    ward = Ward(Fault.LATENCY)
    before = ward.clock.monotonic()
    assert look(ward.tier, 0, 9) == [None, NEVER]
    assert ward.clock.monotonic() - before in LATENCIES_SECONDS


def test_an_error_answers_as_a_tier_that_is_down_and_does_nothing() -> None:
    ward = Ward(Fault.ERROR)
    assert look(ward.tier, 0) == fetch(ward.tier, [make_id(0)]) == [DOWN]
    assert {one.outcome for one in ward.tier.write(RECORDS, durable=True)} == {WriteOutcome.TIER_DOWN}
    assert ward.tier.touch([make_id(0)]) == ward.tier.delete([make_id(0)]) == 0
    assert look(ward.inner, 0, 3) == [None, NEVER]


def test_an_answer_is_lost_after_the_work_is_done() -> None:
    ward = Ward(Fault.LOST_ANSWER)
    assert ward.tier.write(RECORDS[3:], durable=True)[0].outcome is WriteOutcome.TIER_DOWN
    assert ward.tier.delete([make_id(0)]) == 0
    assert look(ward.inner, 0, 3) == [NEVER, None]


@pytest.mark.parametrize("fault", [Fault.TRUNCATION, Fault.BIT_FLIP])
def test_damage_is_refused_on_the_way_in_and_a_miss_on_the_way_out(fault: Fault) -> None:
    ward = Ward(fault)
    assert ward.tier.write(RECORDS[3:], durable=True)[0].outcome is WriteOutcome.CORRUPT
    assert fetch(ward.tier, ids_of(RECORDS)) == [CORRUPT, CORRUPT, CORRUPT, NEVER]
    assert look(ward.inner, 0, 1, 2) == [CORRUPT] * 3
    assert ward.tier.dropped == ids_of(RECORDS[:3])


@pytest.mark.parametrize("seed", range(6))
def test_a_crash_ends_the_call_with_any_part_of_it_done(seed: int) -> None:
    ward = Ward(Fault.CRASH, seed=seed)
    with pytest.raises(CrashError):
        ward.tier.write(make_records(range(10, 14)), durable=True)
    there = [reason is None for reason in look(ward.inner, *range(10, 14))]
    assert there == sorted(there, reverse=True)
    assert look(ward.tier, 0) == [None]


def test_a_crash_lets_the_medium_be_cut_in_the_middle() -> None:
    ward, armed = Ward(), []
    tier = FaultyTier(
        ward.inner,
        Random(0),
        {Fault.CRASH: 1.0},
        wait=ward.clock.advance,
        before_crash=lambda: armed.append(look(ward.inner, 3)),
    )
    with pytest.raises(CrashError):
        tier.write(RECORDS[3:], durable=True)
    assert armed == [[NEVER]]
    assert look(ward.inner, 3) == [None]


def test_equal_seeds_fail_alike() -> None:
    def story(seed: int) -> list[object]:
        tier = Ward(Fault.ERROR, Fault.BIT_FLIP, rate=0.3, seed=seed).tier
        return [fetch(tier, ids_of(RECORDS)) for _ in range(20)]

    assert story(1) == story(1)
    assert story(1) != story(2)


def test_a_hold_goes_on_as_the_contract_says() -> None:
    ward = Ward(Fault.ERROR, rate=0.5)
    for _ in range(20):
        hold = ward.tier.hold(ids_of(RECORDS[:3]))
        hold.keep(1, 3)
        assert len(hold.entries) == 2
        for found in hold.read(0, 2):
            assert isinstance(found, Loaded) or found.reason is DOWN
        hold.release()
        with pytest.raises(ValueError):
            hold.read(0, 2)
