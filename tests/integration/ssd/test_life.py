"""72 hours from the last use, to the minute; and what upkeep does about the rest."""

from kvshelf_client.words import MissReason
from tests.support.records import entry_of, fetch, look, make_id, make_record, make_records
from tests.support.ssd import BLOCK_BYTES, HOUR_SECONDS, TTL_SECONDS, SsdShelf, alive, fill, ids

MINUTE = 60.0


def test_alive_at_71_59_and_gone_at_72_01(shelf: SsdShelf) -> None:
    tier = shelf.open()
    tier.write([make_record(1), make_record(2)], durable=True)
    shelf.clock.advance(50 * HOUR_SECONDS)
    assert tier.touch([make_id(1)]) == 1
    shelf.clock.advance(TTL_SECONDS - 50 * HOUR_SECONDS - MINUTE)
    tier.maintain()
    assert look(tier, 1, 2) == [None, None], "2 is 71:59 old"
    shelf.clock.advance(2 * MINUTE)
    tier.maintain()
    assert look(tier, 1, 2) == [None, MissReason.EXPIRED], "2 is 72:01 old, 1 was used since"
    shelf.clock.advance(50 * HOUR_SECONDS - 2 * MINUTE)
    assert look(tier, 1) == [None], "71:59 since its use"
    assert fetch(tier, [make_id(1)]) == [make_record(1).payload]
    shelf.clock.advance(2 * MINUTE)
    assert look(tier, 1) == [MissReason.EXPIRED], "72:01 since its use, without any upkeep"
    tier.maintain()
    assert tier.usage().records == 0


def test_a_use_that_was_only_batched_counts_and_survives_a_restart(shelf: SsdShelf) -> None:
    tier = shelf.open()
    tier.write([make_record(1)], durable=True)
    shelf.clock.advance(TTL_SECONDS - MINUTE)
    tier.touch([make_id(1)])
    shelf.clock.advance(2 * MINUTE)
    assert look(tier, 1) == [None]
    tier.close()
    tier = shelf.open()
    shelf.clock.advance(TTL_SECONDS - 3 * MINUTE)
    assert look(tier, 1) == [None]
    shelf.clock.advance(2 * MINUTE)
    assert look(tier, 1) == [MissReason.EXPIRED]


def test_expiry_gives_whole_segments_back_and_carries_the_used_forward(shelf: SsdShelf) -> None:
    tier = shelf.open()
    fill(tier, 0, 100)
    before = {number: entry_of(tier, make_id(number)) for number in range(0, 100, 10)}
    used_bytes = tier.usage().used_bytes
    shelf.clock.advance(60 * HOUR_SECONDS)
    assert tier.touch([make_id(number) for number in before]) == 10
    shelf.clock.advance(12 * HOUR_SECONDS + MINUTE)
    for _ in range(10):
        tier.maintain()
    assert (tier.usage().records, tier.usage().live_bytes) == (10, 10 * BLOCK_BYTES)
    assert alive(tier, range(100)) == list(before)
    for number, entry in before.items():
        after = entry_of(tier, make_id(number))
        assert (after.generation, after.created_at) == (entry.generation, entry.created_at)
    assert 9 * BLOCK_BYTES <= shelf.observer.moved_bytes["carry"] <= 10 * BLOCK_BYTES, (
        "one may be in the active segment"
    )
    assert shelf.observer.evicted_records == {"expired": 90}
    fill(tier, 1000, 200)
    assert tier.usage().used_bytes <= used_bytes + (20 << 20)
    assert shelf.observer.evicted_records == {"expired": 90}, "the space of the expired was used"
    assert alive(tier, range(100)) == list(before)
    tier.check_integrity()


def test_nothing_younger_than_the_ttl_goes_while_the_budget_lasts(shelf: SsdShelf) -> None:
    tier = shelf.open(64 << 20)
    for hour in range(0, 200, 4):
        fill(tier, hour * 10, 25)
        shelf.clock.advance(4 * HOUR_SECONDS - 1)
        tier.maintain()
        first = max(0, hour - 68)
        kept = [number for start in range(first, hour + 1, 4) for number in range(start * 10, start * 10 + 25)]
        assert look(tier, *kept) == [None] * len(kept), f"at hour {hour}"
        shelf.clock.advance(1)
    assert set(shelf.observer.evicted_records) == {"expired"}
    assert tier.retention_seconds is None
    assert all(TTL_SECONDS <= age <= TTL_SECONDS + HOUR_SECONDS for age in shelf.observer.ages)


def test_the_lag_of_expiry_is_that_of_the_oldest_record_which_still_takes_space(shelf: SsdShelf) -> None:
    tier = shelf.open()
    assert tier.usage().expiry_lag_seconds == 0
    tier.write(make_records([1]), durable=True)
    shelf.clock.advance(TTL_SECONDS)
    assert tier.usage().expiry_lag_seconds == 0
    shelf.clock.advance(HOUR_SECONDS)
    assert tier.usage().expiry_lag_seconds == HOUR_SECONDS
    tier.maintain()
    assert tier.usage().expiry_lag_seconds == 0


def test_a_clock_that_steps_back_keeps_everything_and_still_expires(shelf: SsdShelf) -> None:
    tier = shelf.open()
    tier.write(make_records([1]), durable=True)
    shelf.clock.step(-365 * 24 * HOUR_SECONDS)
    tier.write(make_records([2]), durable=True)
    tier.maintain()
    assert look(tier, 1, 2) == [None, None]
    tier.close()
    tier = shelf.open()
    shelf.clock.advance(TTL_SECONDS - MINUTE)
    assert look(tier, 1, 2) == [None, None]
    shelf.clock.advance(2 * MINUTE)
    assert look(tier, 1, 2) == [MissReason.EXPIRED] * 2
    tier.maintain()
    assert tier.usage().records == 0


def test_a_mass_of_touches_is_kept_until_upkeep(shelf: SsdShelf) -> None:
    tier = shelf.open(64 << 20)
    fill(tier, 0, 10_000, size=1, batch=1000)
    shelf.clock.advance(TTL_SECONDS - MINUTE)
    assert tier.touch(ids(range(10_000))) == 10_000
    shelf.clock.advance(2 * MINUTE)
    tier.maintain()
    assert tier.usage().records == 10_000
    assert tier.touch(ids(range(10_000))) == 10_000
