"""The tier contract, part 4: accounts, budgets, threads and the end."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kvshelf_client.frames import checksum_of
from kvshelf_client.words import MissReason
from storage.base import Loaded, Record, Tier
from tests.support.records import REPLAYED, fetch, ids_of, look, make_id, make_record, make_records
from tests.support.tiers import FACTORIES, TTL_SECONDS, TierFactory

BUDGETED = [kind for kind in FACTORIES if kind.small_budget_bytes]
THREADS = 8


def test_a_new_tier_is_empty_and_up(factory: TierFactory, tier: Tier) -> None:
    usage = tier.usage()
    assert (usage.records, usage.live_bytes, usage.pinned_bytes, usage.owners) == (0, 0, 0, {})
    assert tier.is_up()
    assert tier.is_durable is factory.is_durable
    assert tier.name in ("ssd", "dram")


def test_usage_adds_up(factory: TierFactory, tier: Tier) -> None:
    tier.write([make_record(n, size=100 + n, owner="acme") for n in range(10)], durable=True)
    tier.write([make_record(n, size=50, owner="other") for n in range(10, 14)], durable=True)
    tier.write([make_record(20, size=70, provenance=REPLAYED, owner="other"), make_record(21, size=5)], durable=True)
    factory.advance(5)
    usage = tier.usage()
    assert (usage.records, usage.live_bytes) == (16, factory.kept(1045 + 200 + 75, 16))
    assert usage.owners == {"acme": factory.kept(1045, 10), "other": factory.kept(270, 5), "": factory.kept(5, 1)}
    assert usage.used_bytes >= usage.live_bytes
    assert not usage.budget_bytes or usage.used_bytes <= usage.budget_bytes
    tier.write([make_record(20, size=30, owner="acme")], durable=True)
    tier.delete([make_id(0), make_id(21)])
    usage = tier.usage()
    assert (usage.records, usage.live_bytes) == (14, factory.kept(945 + 200 + 30, 14))
    assert usage.owners == {"acme": factory.kept(975, 10), "other": factory.kept(200, 4)}
    tier.check_integrity()


def test_a_hold_shows_in_the_usage_and_goes_from_it(factory: TierFactory, tier: Tier) -> None:
    tier.write(make_records(range(4)), durable=True)
    hold = tier.hold([make_id(0), make_id(1), make_id(0), make_id(99)])
    pinned = tier.usage().pinned_bytes
    hold.keep(0, 1)
    assert tier.usage().pinned_bytes <= pinned
    hold.release()
    assert tier.usage().pinned_bytes == 0
    assert tier.usage().live_bytes == factory.kept(4000, 4)


@pytest.mark.parametrize("factory", BUDGETED, indirect=True)
def test_the_budget_holds_and_the_oldest_go(factory: TierFactory) -> None:
    budget = factory.small_budget_bytes
    tier = factory.make(budget_bytes=budget)
    count = 3 * budget // 10_000
    for start in range(0, count, 20):
        batch = make_records(range(start, start + 20), size=10_000)
        assert {result.outcome for result in tier.write(batch, durable=True)} == {"stored"}
        usage = tier.usage()
        assert usage.live_bytes <= usage.used_bytes <= usage.budget_bytes == budget
        assert fetch(tier, ids_of(batch)) == [record.payload for record in batch]
    assert look(tier, 0, 1) == [MissReason.EVICTED] * 2
    assert tier.usage().live_bytes > budget // 3
    assert factory.observer.evicted_records["budget"] + tier.usage().records == start + 20
    assert set(factory.observer.evicted_records) == {"budget"}
    tier.check_integrity()


@pytest.mark.parametrize("factory", BUDGETED, indirect=True)
def test_a_record_over_the_whole_budget_is_refused(factory: TierFactory) -> None:
    tier = factory.make(budget_bytes=factory.small_budget_bytes)
    small, big = make_record(1), make_record(2, size=factory.small_budget_bytes + 1)
    assert [result.outcome for result in tier.write([small, big], durable=True)] == ["stored", "full"]
    assert look(tier, 1, 2) == [None, MissReason.NEVER_STORED]
    tier.check_integrity()


@pytest.mark.parametrize("factory", BUDGETED, indirect=True)
def test_the_space_of_the_expired_is_used_before_anything_else_goes(factory: TierFactory) -> None:
    tier = factory.make(budget_bytes=factory.small_budget_bytes)
    half = factory.small_budget_bytes // 2 // 10_000 - 2
    tier.write(make_records(range(half), size=10_000), durable=True)
    factory.advance(TTL_SECONDS + 1)
    fresh = make_records(range(1000, 1000 + half), size=10_000)
    for _ in range(3):
        tier.maintain()
    tier.write(fresh, durable=True)
    assert fetch(tier, ids_of(fresh)) == [record.payload for record in fresh]
    assert factory.observer.evicted_records["budget"] == 0


def test_threads_hammering(factory: TierFactory, tier: Tier) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(_hammer, tier, random.Random(seed)) for seed in range(THREADS)]:
            done.result()
    tier.check_integrity()
    assert tier.usage().pinned_bytes == 0
    tier.delete([make_id(number) for number in range(40)])
    usage = tier.usage()
    assert (usage.records, usage.live_bytes, usage.owners) == (0, 0, {})


def _hammer(tier: Tier, rng: random.Random) -> None:
    """Every verb at random on few ids; every payload read must be one that was written under that id."""
    for _ in range(60):
        numbers = rng.choices(range(40), k=rng.randint(1, 8))
        ids = [make_id(number) for number in numbers]
        verb = rng.randrange(8)
        if verb < 3:
            tier.write([_variant(number, rng.randrange(4)) for number in numbers], durable=False)
        elif verb < 6:
            hold = tier.hold(ids)
            for number, held, result in zip(numbers, hold.entries, hold.read(0, len(ids)), strict=True):
                if isinstance(result, Loaded):
                    assert checksum_of(result.payload) == result.entry.checksum
                    assert bytes(result.payload) in [_variant(number, kind).payload for kind in range(4)]
                    assert not isinstance(held, type(result)) or result.entry.provenance >= held.entry.provenance
            hold.release()
        elif verb == 6:
            tier.touch(ids)
            tier.maintain()
        else:
            tier.delete(ids[:1])
            tier.usage()


def _variant(number: int, kind: int) -> Record:
    """Four records that fight for one id: two replayed, two exact."""
    provenance = REPLAYED if kind < 2 else make_record(0).provenance
    return make_record(number, size=300 + 10 * kind, content=number * 4 + kind, provenance=provenance, owner=str(kind))


def test_racing_writers_agree_on_one_winner(tier: Tier) -> None:
    records = [make_record(1, content=content) for content in range(THREADS)]
    barrier = threading.Barrier(THREADS)

    def work(record: Record) -> str:
        barrier.wait()
        return tier.write([record], durable=False)[0].outcome

    with ThreadPoolExecutor(THREADS) as pool:
        outcomes = sorted(pool.map(work, records))
    assert outcomes == ["duplicate"] * (THREADS - 1) + ["stored"]
    assert fetch(tier, [make_id(1)])[0] in [record.payload for record in records]


def test_closing_twice_and_use_afterwards(factory: TierFactory) -> None:
    tier = factory.make()
    tier.write(make_records([1]), durable=True)
    tier.close()
    tier.close()
    with pytest.raises(ValueError):
        tier.lookup([make_id(1)])
    with pytest.raises(ValueError):
        tier.write(make_records([2]), durable=True)
