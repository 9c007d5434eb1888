"""The tier contract, part 2: how long records live, how they go, and what a miss says afterwards."""

import pytest

from kvshelf_client.words import MissReason
from storage.base import Loaded, Miss, Tier, WriteOutcome
from tests.support.records import REPLAYED, entry_of, fetch, ids_of, look, make_id, make_record, make_records
from tests.support.tiers import FACTORIES, TTL_SECONDS, TierFactory


def test_a_record_lives_its_ttl_and_no_longer(factory: TierFactory, tier: Tier) -> None:
    record = make_record(1)
    tier.write([record], durable=True)
    factory.advance(TTL_SECONDS - 1)
    assert look(tier, 1) == [None]
    assert fetch(tier, [record.id]) == [record.payload]
    factory.advance(2)
    assert look(tier, 1) == [MissReason.EXPIRED]
    assert fetch(tier, [record.id]) == [MissReason.EXPIRED]
    assert tier.touch([record.id]) == 0, "the dead are not renewed"
    assert look(tier, 1) == [MissReason.EXPIRED]


def test_a_touch_renews(factory: TierFactory, tier: Tier) -> None:
    tier.write(make_records([1, 2]), durable=True)
    stored_at = factory.clock.now()
    for _ in range(3):
        factory.advance(TTL_SECONDS - 1)
        assert tier.touch([make_id(1), make_id(99)]) == 1
    assert look(tier, 1, 2) == [None, MissReason.EXPIRED]
    entry = entry_of(tier, make_id(1))
    assert entry.created_at == stored_at
    assert entry.last_used_at == pytest.approx(factory.clock.now(), abs=0.5)
    factory.advance(TTL_SECONDS - 1)
    assert look(tier, 1) == [None]
    factory.advance(2)
    assert look(tier, 1) == [MissReason.EXPIRED]


def test_neither_a_lookup_nor_a_read_renews(factory: TierFactory, tier: Tier) -> None:
    record = make_record(1)
    tier.write([record], durable=True)
    before = entry_of(tier, record.id)
    factory.advance(TTL_SECONDS - 1)
    assert look(tier, 1) == [None]
    assert fetch(tier, [record.id]) == [record.payload]
    assert entry_of(tier, record.id).last_used_at == pytest.approx(before.last_used_at, abs=0.5)
    factory.advance(2)
    assert look(tier, 1) == [MissReason.EXPIRED]


def test_a_use_reads_and_renews(factory: TierFactory, tier: Tier) -> None:
    record = make_record(1)
    tier.write([record], durable=True)
    for _ in range(3):
        factory.advance(TTL_SECONDS - 1)
        hold = tier.hold([make_id(99), record.id])
        absent, used = tier.use(hold, 0, 2)
        hold.release()
        assert absent == Miss(make_id(99), MissReason.NEVER_STORED)
        assert isinstance(used, Loaded)
        assert bytes(used.payload) == record.payload
    assert entry_of(tier, record.id).last_used_at == pytest.approx(factory.clock.now(), abs=0.5)
    factory.advance(TTL_SECONDS + 1)
    assert look(tier, 1) == [MissReason.EXPIRED]


def test_a_use_finds_what_is_gone_by_then(factory: TierFactory, tier: Tier) -> None:
    if factory.holds_are_firm:
        return
    tier.write(make_records([1, 2]), durable=True)
    hold = tier.hold([make_id(1), make_id(2)])
    tier.delete([make_id(1)])
    gone, used = tier.use(hold, 0, 2)
    assert isinstance(gone, Miss)
    assert isinstance(used, Loaded)


def test_a_duplicate_renews(factory: TierFactory, tier: Tier) -> None:
    tier.write([make_record(1), make_record(2), make_record(3)], durable=True)
    factory.advance(TTL_SECONDS - 1)
    tier.write([make_record(1), make_record(2, provenance=REPLAYED)], durable=True)
    tier.write([make_record(3)._replace(checksum=1)], durable=True)
    factory.advance(2)
    assert look(tier, 1, 2, 3) == [None, None, MissReason.EXPIRED]


def test_a_replacement_lives_anew(factory: TierFactory, tier: Tier) -> None:
    tier.write([make_record(1, provenance=REPLAYED)], durable=True)
    factory.advance(TTL_SECONDS - 1)
    tier.write([make_record(1)], durable=True)
    factory.advance(TTL_SECONDS - 1)
    assert look(tier, 1) == [None]
    factory.advance(2)
    assert look(tier, 1) == [MissReason.EXPIRED]


@pytest.mark.parametrize("is_maintained", [False, True])
def test_an_expired_record_can_be_stored_again(factory: TierFactory, tier: Tier, is_maintained: bool) -> None:
    tier.write([make_record(1)], durable=True)
    before = entry_of(tier, make_id(1))
    factory.advance(TTL_SECONDS + 1)
    if is_maintained:
        tier.maintain()
    lesser = make_record(1, provenance=REPLAYED, content=2)
    (result,) = tier.write([lesser], durable=True)
    assert result.outcome is WriteOutcome.STORED
    assert result.generation != before.generation
    entry = entry_of(tier, lesser.id)
    assert (entry.provenance, entry.created_at) == (REPLAYED, factory.clock.now())
    assert fetch(tier, [lesser.id]) == [lesser.payload]


def test_upkeep_takes_back_the_space_of_the_expired(factory: TierFactory, tier: Tier) -> None:
    tier.write(make_records(range(100)), durable=True)
    factory.advance(TTL_SECONDS / 2)
    tier.touch([make_id(7)])
    tier.write(make_records([200, 201]), durable=True)
    factory.advance(TTL_SECONDS / 2 + 1)
    for _ in range(5):
        tier.maintain()
    usage = tier.usage()
    assert (usage.records, usage.live_bytes) == (3, factory.kept(3000, 3))
    assert look(tier, 0, 7, 99, 200, 201) == [MissReason.EXPIRED, None, MissReason.EXPIRED, None, None]
    assert factory.observer.evicted_records == {"expired": 99}
    assert factory.observer.evicted_bytes == {"expired": factory.kept(99_000, 99)}
    assert len(factory.observer.ages) == 99
    assert all(TTL_SECONDS <= age <= TTL_SECONDS + 1 for age in factory.observer.ages)


def test_deleted_records_are_gone(factory: TierFactory, tier: Tier) -> None:
    records = make_records([1, 2, 3])
    tier.write(records, durable=True)
    before = entry_of(tier, make_id(2))
    assert tier.delete([make_id(2), make_id(99), make_id(2)]) == 1
    assert look(tier, 1, 2, 3) == [None, MissReason.NEVER_STORED, None]
    assert fetch(tier, ids_of(records))[1] is MissReason.NEVER_STORED
    assert tier.touch([make_id(2)]) == tier.delete([make_id(2)]) == 0
    assert factory.observer.evicted_records == {"deleted": 1}
    (result,) = tier.write([make_record(2, content=5)], durable=True)
    assert result.outcome is WriteOutcome.STORED
    assert result.generation != before.generation, "key and generation name bytes"


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ("deleted", MissReason.NEVER_STORED),
        ("superseded", MissReason.EVICTED),
        ("corrupt", MissReason.CORRUPT),
    ],
)
def test_the_cause_of_a_deletion_is_remembered(
    factory: TierFactory, tier: Tier, cause: str, reason: MissReason
) -> None:
    tier.write(make_records([1, 2]), durable=True)
    assert tier.delete([make_id(1)], cause=cause) == 1
    assert look(tier, 1, 2) == [reason, None]
    assert factory.observer.evicted_records == {cause: 1}
    assert factory.observer.evicted_bytes == {cause: factory.kept(1000, 1)}
    tier.write(make_records([1]), durable=True)
    assert tier.delete([make_id(1)]) == 1
    assert look(tier, 1) == [MissReason.NEVER_STORED], "storing it again wiped the note"


def test_deleting_the_expired_deletes_nothing(factory: TierFactory, tier: Tier) -> None:
    tier.write(make_records([1]), durable=True)
    factory.advance(TTL_SECONDS + 1)
    assert tier.delete([make_id(1)]) == 0
    assert look(tier, 1) == [MissReason.EXPIRED]


@pytest.mark.parametrize("seconds", [-7200.0, -1.0, 1.0])
def test_a_wall_clock_that_steps_harms_no_new_record(factory: TierFactory, tier: Tier, seconds: float) -> None:
    old, new = make_record(1), make_record(2)
    tier.write([old], durable=True)
    factory.clock.step(seconds)
    assert fetch(tier, [old.id]) == [old.payload]
    assert tier.write([new], durable=True)[0].outcome is WriteOutcome.STORED
    factory.advance(TTL_SECONDS / 2)
    tier.maintain()
    assert fetch(tier, [new.id]) == [new.payload]
    assert tier.touch([old.id, new.id]) == 2
    assert fetch(tier, [old.id, new.id]) == [old.payload, new.payload]


@pytest.mark.parametrize("factory", [kind for kind in FACTORIES if kind.is_durable], indirect=True)
def test_a_durable_tier_keeps_its_records_over_a_restart(factory: TierFactory) -> None:
    tier = factory.make()
    assert tier.is_durable
    records = [*make_records([1, 2]), make_record(3, provenance=REPLAYED, owner="acme", supersedes=b"s" * 32)]
    tier.write(records, durable=True)
    tier.delete([make_id(2)])
    factory.advance(TTL_SECONDS / 2)
    tier.touch([make_id(3)])
    entry, usage = entry_of(tier, make_id(3)), tier.usage()
    tier = factory.reopen(tier)
    assert entry_of(tier, make_id(3)) == entry
    assert look(tier, 1, 2, 3) == [None, MissReason.NEVER_STORED, None]
    assert (
        (tier.usage().records, tier.usage().live_bytes)
        == (usage.records, usage.live_bytes)
        == (2, factory.kept(2000, 2))
    )
    assert tier.usage().owners == usage.owners
    assert fetch(tier, [make_id(1), make_id(3)]) == [records[0].payload, records[2].payload]
    factory.advance(TTL_SECONDS / 2 + 1)
    assert look(tier, 1, 3) == [MissReason.EXPIRED, None]
    tier.check_integrity()
