"""The budget: how full it gets, that churn keeps to it, who goes first, and what refuses."""

import random

import pytest

from kvshelf_client.words import MissReason
from storage.base import Loaded, WriteOutcome
from storage.ssd import WhenFull
from tests.support.records import fetch, look, make_id, make_record, make_records
from tests.support.ssd import BLOCK_BYTES, HOUR_SECONDS, TTL_SECONDS, SsdShelf, alive, fill, ids

MIB = 1 << 20


def test_payloads_reach_95_percent_of_the_budget_and_churn_keeps_to_it(shelf: SsdShelf) -> None:
    budget = 128 * MIB
    tier = shelf.open(budget)
    generation = int(0.75 * budget) // BLOCK_BYTES
    for turn in range(8):
        fill(tier, turn * generation, generation)
        shelf.clock.advance(HOUR_SECONDS)
        tier.maintain()
        if turn >= 2:
            usage = tier.usage()
            assert usage.live_bytes >= 0.95 * budget, f"turn {turn}: {usage.live_bytes / budget:.4f}"
            assert 0.99 * budget <= shelf.disk_bytes() <= budget
            assert usage.used_bytes <= budget
    assert set(shelf.observer.evicted_records) == {"budget"}
    last = 8 * generation
    assert alive(tier, range(last - generation, last)) == list(range(last - generation, last))
    assert tier.retention_seconds is not None
    assert tier.retention_seconds <= 2 * HOUR_SECONDS
    tier.check_integrity()


def test_mixed_sizes_and_uses_keep_to_the_budget(shelf: SsdShelf) -> None:
    budget, rng = 32 * MIB, random.Random(7)
    tier = shelf.open(budget)
    hot = list(range(10))
    tier.write(make_records(hot, size=40_000), durable=True)
    for number in range(100, 3000, 5):
        records = [make_record(n, size=rng.choice([1, 900, 20_000, 200_000])) for n in range(number, number + 5)]
        assert {result.outcome for result in tier.write(records, durable=False)} == {WriteOutcome.STORED}
        shelf.clock.advance(10)
        assert tier.touch([make_id(one) for one in hot]) == 10, f"a record in use was evicted at {number}"
        tier.delete([make_id(rng.randrange(100, number + 5))])
        assert tier.usage().used_bytes <= budget
        if number % 500 == 0:
            tier.maintain()
            tier.check_integrity()
    assert alive(tier, range(10)) == hot
    assert shelf.disk_bytes() <= budget
    assert shelf.observer.moved_bytes["carry"] > 0


def test_many_small_records_let_the_index_have_its_share(shelf: SsdShelf) -> None:
    budget = 16 * MIB
    tier = shelf.open(budget)
    for start in range(0, 20_000, 1000):
        fill(tier, start, 1000, size=10, batch=500)
        assert tier.usage().used_bytes <= budget
    assert shelf.disk_bytes() <= budget
    assert alive(tier, range(19_000, 20_000)) == list(range(19_000, 20_000))
    tier.check_integrity()


def test_what_was_used_is_carried_at_most_half_a_segment_at_a_time(shelf: SsdShelf) -> None:
    tier = shelf.open(16 * MIB)
    fill(tier, 0, 100)
    assert tier.touch(ids(range(100))) == 100
    fill(tier, 1000, 100)
    assert 40 <= len(alive(tier, range(100))) < 100, "all of it was in use, and yet there was room for new records"
    fill(tier, 1100, 200)
    assert alive(tier, range(1290, 1300)) == list(range(1290, 1300))
    assert tier.retention_seconds == 0.0, "it dropped what was used this very second"


def test_unused_records_go_before_used_ones(shelf: SsdShelf) -> None:
    tier = shelf.open(16 * MIB)
    fill(tier, 0, 60)
    shelf.clock.advance(10)
    used = range(0, 60, 4)
    tier.touch([make_id(number) for number in used])
    shelf.clock.advance(10)
    fill(tier, 1000, 120)
    kept = alive(tier, range(60))
    assert set(used) <= set(kept)
    assert len(kept) < 30
    assert look(tier, 1) == [MissReason.EVICTED]


def test_refusing_keeps_what_was_promised(shelf: SsdShelf) -> None:
    tier = shelf.open(16 * MIB, when_full=WhenFull.REFUSE)
    outcomes = [tier.write([make_record(n, size=BLOCK_BYTES)], durable=False)[0].outcome for n in range(200)]
    count = outcomes.index(WriteOutcome.FULL)
    assert set(outcomes[count:]) == {WriteOutcome.FULL}
    assert count * BLOCK_BYTES > 0.75 * 16 * MIB
    assert alive(tier, range(200)) == list(range(count))
    (again,) = tier.write([make_record(0, size=BLOCK_BYTES)], durable=True)
    assert again.outcome is WriteOutcome.DUPLICATE
    shelf.clock.advance(TTL_SECONDS - 1)
    assert tier.write([make_record(300, size=BLOCK_BYTES)], durable=False)[0].outcome is WriteOutcome.FULL
    tier.touch(ids(range(10)))
    shelf.clock.advance(2)
    fill(tier, 300, 60)
    assert alive(tier, range(10)) == list(range(10))
    assert set(shelf.observer.evicted_records) == {"expired"}
    assert shelf.observer.faults["full"] == len(outcomes) - count + 1


def test_refusing_finds_the_space_of_the_deleted(shelf: SsdShelf) -> None:
    tier = shelf.open(16 * MIB, when_full=WhenFull.REFUSE)
    for number in range(200):
        tier.write([make_record(number, size=BLOCK_BYTES)], durable=False)
    before = tier.usage().records
    deleted = range(0, before, 3)
    assert tier.delete([make_id(number) for number in deleted]) == len(deleted)
    fill(tier, 1000, len(deleted) - 12)
    kept = [number for number in range(before) if number not in deleted]
    assert alive(tier, range(before)) == kept
    tier.check_integrity()


def test_a_hold_survives_churn(shelf: SsdShelf) -> None:
    tier = shelf.open(16 * MIB)
    fill(tier, 0, 20)
    hold = tier.hold(ids(range(20)))
    hold.keep(5, 7)
    fill(tier, 1000, 500)
    for loaded, record in zip(hold.read(0, 2), make_records([5, 6], size=BLOCK_BYTES), strict=True):
        assert isinstance(loaded, Loaded)
        assert loaded.payload == record.payload
    assert tier.usage().used_bytes <= 16 * MIB
    assert look(tier, 12) == [MissReason.EVICTED], "it is in the next segment"
    hold.release()
    fill(tier, 2000, 200)
    assert look(tier, 5) == [MissReason.EVICTED]


@pytest.mark.parametrize("budget", [9 * MIB, 16 * MIB, 300 * MIB])
def test_opening_with_another_budget_adapts(shelf: SsdShelf, budget: int) -> None:
    tier = shelf.open(64 * MIB)
    fill(tier, 0, 500)
    tier.close()
    tier = shelf.open(budget)
    usage = tier.usage()
    assert usage.budget_bytes == budget
    assert usage.used_bytes <= budget
    assert shelf.disk_bytes() <= budget
    newest = range(max(0, 500 - int(0.7 * budget) // BLOCK_BYTES), 500)
    assert alive(tier, newest) == list(newest)
    tier.check_integrity()
    fill(tier, 1000, 300)
    assert tier.usage().used_bytes <= budget
    assert alive(tier, range(1290, 1300)) == list(range(1290, 1300))
    assert (len(alive(tier, range(500))) == 500) == (budget > 64 * MIB)


@pytest.mark.parametrize("when_full", list(WhenFull))
@pytest.mark.parametrize("count", [1, 150, 600])
@pytest.mark.parametrize("budget", [3 * MIB, 9 * MIB, 10 * MIB, 33 * MIB])
def test_a_lowered_budget_is_kept_at_once_and_storing_goes_on(
    shelf: SsdShelf, budget: int, count: int, when_full: WhenFull
) -> None:
    tier = shelf.open(80 * MIB, max_record_bytes=8 * MIB)
    fill(tier, 0, count)
    tier.close()
    for turn in range(2):
        tier = shelf.open(budget, when_full=when_full)
        assert tier.usage().used_bytes <= budget
        assert shelf.disk_bytes() <= budget
        tier.check_integrity()
        (result,) = tier.write([make_record(1000 + turn, size=BLOCK_BYTES)], durable=True)
        assert result.outcome is WriteOutcome.STORED, f"turn {turn}"
        if when_full is WhenFull.EVICT:
            fill(tier, 2000 + 1000 * turn, 300)
            assert tier.usage().live_bytes > 0.4 * budget
        tier.maintain()
        assert tier.usage().used_bytes <= budget
        tier.close()


def test_a_refusing_tier_uses_what_a_lowered_budget_leaves(shelf: SsdShelf) -> None:
    tier = shelf.open(80 * MIB, max_record_bytes=8 * MIB, when_full=WhenFull.REFUSE)
    fill(tier, 0, 20)
    tier.close()
    tier = shelf.open(10 * MIB, when_full=WhenFull.REFUSE)
    kept = alive(tier, range(20))
    assert tier.delete(ids(range(20))) == len(kept)
    fill(tier, 1000, 60)
    assert alive(tier, range(1000, 1060)) == list(range(1000, 1060))


def test_the_index_is_written_anew_when_it_became_too_large_for_the_budget(shelf: SsdShelf) -> None:
    tier = shelf.open(256 * MIB)
    fill(tier, 0, 30_000, size=10, batch=3000)
    large = (shelf.directory / "index" / "data.mdb").stat().st_size
    tier.close()
    budget = 16 * MIB
    tier = shelf.open(budget)
    assert (shelf.directory / "index" / "data.mdb").stat().st_size < large / 3
    assert shelf.disk_bytes() <= budget
    assert tier.usage().records > 0.6 * budget / 4096
    assert alive(tier, range(29_000, 30_000)) == list(range(29_000, 30_000))
    tier.check_integrity()
    usage = tier.usage()
    tier.close()
    (shelf.directory / "index" / "compact").mkdir()
    tier = shelf.open(budget)
    assert tier.usage()[:2] == usage[:2]
    assert not (shelf.directory / "index" / "compact").exists()
    fill(tier, 40_000, 5000, size=10, batch=1000)
    assert tier.usage().used_bytes <= budget


def test_a_recycled_segment_never_answers_for_an_old_key(shelf: SsdShelf) -> None:
    tier = shelf.open(8 * MIB)
    fill(tier, 0, 50)
    old = tier.lookup(ids(range(50)))
    fill(tier, 1000, 400)
    assert set(fetch(tier, [entry.id for entry in old])) == {MissReason.EVICTED}
    fill(tier, 0, 50, size=5000)
    for number, entry in enumerate(old):
        (loaded,) = fetch(tier, [entry.id])
        assert loaded == make_record(number, size=5000).payload


def test_a_record_larger_than_a_segment_is_full_and_evicts_nothing(shelf: SsdShelf) -> None:
    tier = shelf.open(16 * MIB)
    fill(tier, 0, 100)
    sizes = [tier.max_record_bytes, tier.max_record_bytes + 1]
    results = tier.write([make_record(1000 + size, size=size) for size in sizes], durable=True)
    assert [result.outcome for result in results] == [WriteOutcome.STORED, WriteOutcome.FULL]
    assert fetch(tier, [make_id(1000 + sizes[0])]) == [make_record(1000 + sizes[0], size=sizes[0]).payload]
    assert len(alive(tier, range(100))) == 100
