"""Budgets of owners in a real Redis: who is over theirs loses their own records, the least used first."""

import os
from collections.abc import Iterator
from itertools import pairwise

import pytest

from storage.base import Entry, Record, WriteOutcome
from storage.clock import ManualClock
from storage.dram import RedisTier
from storage.dram.quotas import RECORD_OVERHEAD_BYTES
from tests.support.observers import RecordingObserver
from tests.support.records import make_record

SIZE = 9_000
COST = SIZE + RECORD_OVERHEAD_BYTES
ROOM = 20
"""Records of that size in a budget."""
BUDGETS = {"": ROOM * COST, "a": ROOM * COST, "b": ROOM * COST}


class Pool:
    """A tier under a prefix of its own, and records of owners."""

    def __init__(self, url: str, known_records: int = 10_000) -> None:
        self.clock = ManualClock()
        self.observer = RecordingObserver()
        self.tier = RedisTier(
            url=url,
            clock=self.clock,
            ttl_seconds=600,
            observer=self.observer,
            prefix=f"kvshelf-test-{os.urandom(6).hex()}:",
            timeout_seconds=10,
            known_records=known_records,
            budgets=BUDGETS,
        )

    def record(self, number: int, owner: str, size: int = SIZE) -> Record:
        """A record of an owner."""
        return make_record(number, size=size)._replace(owner=owner)

    def write(self, numbers: range, owner: str, size: int = SIZE) -> list[WriteOutcome]:
        """Store records one by one, at different times."""
        outcomes = []
        for number in numbers:
            self.clock.advance(0.01)
            (result,) = self.tier.write([self.record(number, owner, size)], durable=False)
            outcomes.append(result.outcome)
        return outcomes

    def there(self, numbers: range) -> list[int]:
        """Which of these records are there."""
        ids = [make_record(number).id for number in numbers]
        return [number for number, one in zip(numbers, self.tier.lookup(ids), strict=True) if isinstance(one, Entry)]


@pytest.fixture
def pool(redis_url: str) -> Iterator[Pool]:
    made = Pool(redis_url)
    yield made
    made.tier.check_integrity()
    made.tier.delete([make_record(number).id for number in range(1000)])
    made.tier.close()


def test_a_full_budget_is_kept_and_one_more_is_too_many(pool: Pool) -> None:
    pool.write(range(ROOM), "a")
    assert pool.there(range(ROOM)) == list(range(ROOM))
    pool.write(range(ROOM, ROOM + 1), "a")
    there = pool.there(range(ROOM + 1))
    assert ROOM * 0.9 <= len(there) <= ROOM
    assert there == list(range(ROOM + 1 - len(there), ROOM + 1)), "the least used went"


@pytest.mark.parametrize(("flooder", "others"), [("a", ["b", "x"]), ("x", ["a", "b"]), ("y", ["a", "b"])])
def test_a_flood_evicts_its_own_alone(pool: Pool, flooder: str, others: list[str]) -> None:
    starts = dict(zip(others, (0, 100), strict=True))
    for owner, start in starts.items():
        pool.write(range(start, start + ROOM), owner)
    pool.write(range(500, 500 + 5 * ROOM), flooder)
    for start in starts.values():
        assert pool.there(range(start, start + ROOM)) == list(range(start, start + ROOM))
    left = pool.there(range(500, 500 + 5 * ROOM))
    assert ROOM * 0.9 <= len(left) <= ROOM
    assert all(second == first + 1 for first, second in pairwise(left))
    assert pool.tier.usage().owners[flooder] == len(left) * SIZE


def test_those_without_a_budget_share_one(pool: Pool) -> None:
    pool.write(range(ROOM), "x")
    pool.write(range(100, 100 + ROOM), "y")
    assert pool.there(range(ROOM)) == []
    assert len(pool.there(range(100, 100 + ROOM))) >= ROOM * 0.9


def test_what_is_used_stays(pool: Pool) -> None:
    pool.write(range(ROOM), "a")
    pool.clock.advance(1)
    pool.tier.touch([make_record(0).id])
    pool.write(range(ROOM, 2 * ROOM - 3), "a")
    assert pool.there(range(1)) == [0]
    assert pool.there(range(1, 5)) == []


def test_a_record_beyond_the_budget_is_refused_and_takes_nothing(pool: Pool) -> None:
    pool.write(range(ROOM), "a")
    largest = ROOM * COST - RECORD_OVERHEAD_BYTES
    assert pool.write(range(100, 101), "a", largest + 1) == [WriteOutcome.FULL]
    assert pool.observer.faults["full"] == 1
    assert pool.there(range(ROOM)) == list(range(ROOM))
    assert pool.write(range(100, 101), "a", largest) == [WriteOutcome.STORED]


def test_a_call_of_several_owners_answers_in_order(pool: Pool) -> None:
    records = [pool.record(0, "a"), pool.record(1, "b", 10**6), pool.record(2, "x"), pool.record(3, "b")]
    outcomes = [result.outcome for result in pool.tier.write(records, durable=False)]
    assert outcomes == [WriteOutcome.STORED, WriteOutcome.FULL, WriteOutcome.STORED, WriteOutcome.STORED]


def test_many_small_records_push_nobody_out_of_what_is_known(redis_url: str) -> None:
    pool = Pool(redis_url, known_records=60)
    pool.write(range(15), "a")
    pool.write(range(100, 300), "b", size=1)
    assert pool.tier.usage().owners["a"] == 15 * SIZE
    assert len(pool.there(range(100, 300))) <= 20
    pool.tier.delete([make_record(number).id for number in range(300)])
    pool.tier.close()
