"""The tier contract, part 3: holds keep records readable, as far as the tier can."""

import pytest

from kvshelf_client.words import MissReason
from storage.base import Loaded, Miss, Record, Tier
from tests.support.records import (
    REPLAYED,
    entry_of,
    fetch,
    ids_of,
    look,
    make_id,
    make_record,
    make_records,
    reasons,
)
from tests.support.tiers import FACTORIES, TTL_SECONDS, TierFactory

FIRM = [kind for kind in FACTORIES if kind.holds_are_firm]
BUDGETED = [kind for kind in FIRM if kind.small_budget_bytes]


def payloads(results: list[Loaded | Miss]) -> list[bytes | MissReason]:
    return [bytes(one.payload) if isinstance(one, Loaded) else one.reason for one in results]


def test_any_range_of_a_hold_is_read_as_often_as_one_likes(tier: Tier) -> None:
    records = make_records(range(5))
    tier.write(records, durable=True)
    hold = tier.hold([*ids_of(records), make_id(99)])
    expected: list[bytes | MissReason] = [*(bytes(record.payload) for record in records), MissReason.NEVER_STORED]
    for start in range(7):
        for end in range(start, 7):
            assert payloads(hold.read(start, end)) == expected[start:end]
    hold.release()


def test_a_miss_stays_that_miss(tier: Tier) -> None:
    hold = tier.hold([make_id(1)])
    tier.write(make_records([1]), durable=True)
    assert hold.read(0, 1) == hold.entries == [Miss(make_id(1), MissReason.NEVER_STORED)]
    hold.release()
    assert look(tier, 1) == [None]


def test_keeping_a_range(tier: Tier) -> None:
    records = make_records(range(6))
    tier.write(records, durable=True)
    hold = tier.hold(ids_of(records))
    hold.keep(1, 5)
    assert [entry.id for entry in hold.entries] == ids_of(records[1:5])
    assert payloads(hold.read(0, 4)) == [record.payload for record in records[1:5]]
    hold.keep(3, 4)
    assert payloads(hold.read(0, 1)) == [records[4].payload]
    hold.keep(0, 0)
    assert hold.entries == hold.read(0, 0) == []
    hold.release()
    assert tier.usage().pinned_bytes == 0


def test_a_released_hold_cannot_be_read(tier: Tier) -> None:
    tier.write(make_records([1]), durable=True)
    hold = tier.hold([make_id(1)])
    hold.release()
    hold.release()
    with pytest.raises(ValueError):
        hold.read(0, 1)
    with pytest.raises(ValueError):
        hold.read(0, 0)
    assert look(tier, 1) == [None]


def test_what_was_loaded_outlives_the_hold_and_the_record(factory: TierFactory, tier: Tier) -> None:
    record = make_record(1, size=9000)
    expected = bytes(record.payload)
    tier.write([record], durable=True)
    hold = tier.hold([record.id])
    (loaded,) = hold.read(0, 1)
    hold.release()
    tier.delete([record.id])
    tier.write(make_records(range(2, 50), size=9000), durable=True)
    assert isinstance(loaded, Loaded)
    assert bytes(loaded.payload) == expected


def test_a_read_never_returns_less_than_was_held(factory: TierFactory, tier: Tier) -> None:
    exact, replayed = make_record(1), make_record(1, provenance=REPLAYED, content=2)
    tier.write([exact], durable=True)
    hold = tier.hold([exact.id])
    tier.delete([exact.id])
    tier.write([replayed], durable=True)
    (result,) = hold.read(0, 1)
    if factory.holds_are_firm:
        assert isinstance(result, Loaded)
    if isinstance(result, Loaded):
        assert (bytes(result.payload), result.entry.provenance) == (exact.payload, exact.provenance)
    hold.release()
    assert fetch(tier, [exact.id]) == [replayed.payload]


def test_a_held_record_that_is_replaced_is_read_whole(factory: TierFactory, tier: Tier) -> None:
    replayed, exact = make_record(1, provenance=REPLAYED), make_record(1, content=2, size=500)
    tier.write([replayed], durable=True)
    hold = tier.hold([replayed.id])
    tier.write([exact], durable=True)
    (result,) = hold.read(0, 1)
    if factory.holds_are_firm:
        assert isinstance(result, Loaded)
        assert bytes(result.payload) == replayed.payload
        assert result.entry._replace(checksum=factory.looked_up(replayed.checksum)) == hold.entries[0]
    else:
        assert result == Miss(exact.id, MissReason.EVICTED), "the one that is there has another length"
    hold.release()
    assert fetch(tier, [exact.id]) == [exact.payload]


def test_a_better_record_of_the_same_length_may_be_read_in_its_place(factory: TierFactory, tier: Tier) -> None:
    replayed, exact = make_record(1, provenance=REPLAYED), make_record(1, content=2)
    tier.write([replayed], durable=True)
    hold = tier.hold([replayed.id])
    tier.write([exact], durable=True)
    (result,) = hold.read(0, 1)
    assert isinstance(result, Loaded)
    served = replayed if factory.holds_are_firm else exact
    assert bytes(result.payload) == served.payload
    assert (result.entry.provenance, result.entry.checksum) == (served.provenance, served.checksum)
    hold.release()


@pytest.mark.parametrize("factory", FIRM, indirect=True)
@pytest.mark.parametrize("is_maintained", [False, True])
def test_a_firm_hold_outlives_deletion_and_expiry(factory: TierFactory, tier: Tier, is_maintained: bool) -> None:
    records = make_records(range(6))
    tier.write(records, durable=True)
    hold = tier.hold(ids_of(records))
    assert tier.usage().pinned_bytes >= 6000
    tier.delete(ids_of(records[:3]))
    factory.advance(TTL_SECONDS + 1)
    if is_maintained:
        for _ in range(3):
            tier.maintain()
    assert look(tier, *range(6)) == [MissReason.NEVER_STORED] * 3 + [MissReason.EXPIRED] * 3
    assert payloads(hold.read(0, 6)) == [record.payload for record in records]
    tier.check_integrity()
    hold.keep(2, 4)
    assert payloads(hold.read(0, 2)) == [record.payload for record in records[2:4]]
    hold.release()
    assert tier.usage().pinned_bytes == 0


@pytest.mark.parametrize("factory", FIRM, indirect=True)
def test_two_holds_on_a_record_are_two_holds(factory: TierFactory, tier: Tier) -> None:
    record = make_record(1)
    tier.write([record], durable=True)
    first, second = tier.hold([record.id, record.id]), tier.hold([record.id])
    tier.delete([record.id])
    first.release()
    assert tier.usage().pinned_bytes >= 1000
    assert payloads(second.read(0, 1)) == [record.payload]
    second.release()
    assert tier.usage().pinned_bytes == 0


@pytest.mark.parametrize("factory", FIRM, indirect=True)
def test_damage_under_a_hold_is_a_miss(factory: TierFactory, tier: Tier) -> None:
    records = make_records([1, 2])
    tier.write(records, durable=True)
    hold = tier.hold(ids_of(records))
    factory.damage(tier, records[0])
    assert reasons(hold.read(0, 2)) == [MissReason.CORRUPT, None]
    assert reasons(hold.read(0, 1)) == [MissReason.CORRUPT]
    hold.release()


@pytest.mark.parametrize("factory", BUDGETED, indirect=True)
def test_eviction_passes_a_firm_hold_by(factory: TierFactory) -> None:
    tier = factory.make(budget_bytes=factory.small_budget_bytes)
    first = make_records(range(5), size=10_000)
    tier.write(first, durable=True)
    hold = tier.hold(ids_of(first))
    for number in range(10, 10 + 4 * factory.small_budget_bytes // 10_000, 8):
        tier.write(make_records(range(number, number + 8), size=10_000), durable=False)
        assert tier.usage().used_bytes <= factory.small_budget_bytes
    assert payloads(hold.read(0, 5)) == [record.payload for record in first]
    hold.release()
    tier.check_integrity()


@pytest.mark.parametrize("factory", BUDGETED, indirect=True)
def test_when_all_is_held_there_is_no_room_until_it_is_released(factory: TierFactory) -> None:
    tier = factory.make(budget_bytes=factory.small_budget_bytes)
    holds, kept = [], list[Record]()
    for number in range(2 * factory.small_budget_bytes // 10_000):
        refused = make_record(number, size=10_000)
        (result,) = tier.write([refused], durable=True)
        if result.outcome != "stored":
            break
        holds.append(tier.hold([refused.id]))
        kept.append(refused)
    assert result == (refused.id, "full", 0)
    assert factory.observer.faults["full"] >= 1
    assert len(kept) * 10_000 > factory.small_budget_bytes // 3
    assert look(tier, len(kept)) == [MissReason.NEVER_STORED]
    for hold, record in zip(holds, kept, strict=True):
        assert payloads(hold.read(0, 1)) == [record.payload]
        hold.release()
    assert tier.write([refused], durable=True)[0].outcome == "stored"
    assert entry_of(tier, refused.id).length_bytes == 10_000
    tier.check_integrity()
