"""The tier contract, part 1: records. What is written is read, once, whole, and the better one wins."""

import pytest

from kvshelf_client.words import MissReason
from storage.base import MAX_LABEL, MAX_SHARD, Loaded, Miss, Record, RecordId, Tier, WriteOutcome
from tests.support.records import (
    EXACT,
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
from tests.support.tiers import TierFactory


def write(tier: Tier, *records: Record, durable: bool = True) -> list[WriteOutcome]:
    results = tier.write(records, durable=durable)
    assert [result.id for result in results] == ids_of(records)
    return [result.outcome for result in results]


def test_what_is_written_is_read(factory: TierFactory, tier: Tier) -> None:
    record = make_record(1, size=1234, owner="acme")
    (result,) = tier.write([record], durable=True)
    assert result.outcome is WriteOutcome.STORED
    entry = entry_of(tier, record.id)
    assert entry._replace(generation=0) == (
        record.id, EXACT, 1234, factory.looked_up(record.checksum), 0, factory.clock.now(), factory.clock.now(), None, 0
    )  # fmt: skip
    assert entry.generation == result.generation > 0
    hold = tier.hold([record.id])
    assert hold.entries == [entry]
    (loaded,) = hold.read(0, 1)
    hold.release()
    assert isinstance(loaded, Loaded)
    assert loaded.entry == entry._replace(checksum=record.checksum)
    assert bytes(loaded.payload) == record.payload
    assert factory.observer.moved_bytes == {"write": factory.kept(1234, 1), "read": factory.kept(1234, 1)}
    assert factory.observer.tiers == {tier.name}


def test_a_relaxed_write_is_read_too(tier: Tier) -> None:
    record = make_record(1)
    assert write(tier, record, durable=False) == [WriteOutcome.STORED]
    assert fetch(tier, [record.id]) == [record.payload]


def test_what_was_never_stored_is_a_miss(tier: Tier) -> None:
    write(tier, make_record(1))
    unknown = make_id(2)
    assert tier.lookup([unknown]) == [Miss(unknown, MissReason.NEVER_STORED)]
    assert tier.hold([unknown]).entries == [Miss(unknown, MissReason.NEVER_STORED)]
    assert fetch(tier, [unknown]) == [MissReason.NEVER_STORED]
    assert tier.touch([unknown]) == tier.delete([unknown]) == 0


def test_calls_with_nothing(tier: Tier) -> None:
    write(tier, make_record(1))
    assert tier.lookup([]) == []
    assert tier.write([], durable=True) == []
    assert tier.hold([]).entries == []
    assert tier.touch([]) == tier.delete([]) == 0
    hold = tier.hold([make_id(1)])
    assert hold.read(0, 0) == []
    hold.release()
    assert look(tier, 1) == [None]


def test_the_first_write_wins(factory: TierFactory, tier: Tier) -> None:
    first, second = make_record(1, size=900), make_record(1, size=800, content=2)
    write(tier, first)
    generation = entry_of(tier, first.id).generation
    (result,) = tier.write([second], durable=True)
    assert result == (first.id, WriteOutcome.DUPLICATE, generation)
    assert fetch(tier, [first.id]) == [first.payload]
    assert factory.observer.moved_bytes["write"] == factory.kept(900, 1), "a duplicate moves no bytes"


def test_exact_replaces_replayed_and_never_the_reverse(factory: TierFactory, tier: Tier) -> None:
    replayed = make_record(1, size=900, provenance=REPLAYED)
    exact = make_record(1, size=950, content=2)
    other = make_record(1, size=990, content=3, provenance=REPLAYED)
    assert write(tier, replayed) == [WriteOutcome.STORED]
    assert write(tier, other) == [WriteOutcome.DUPLICATE]
    before = entry_of(tier, replayed.id)
    (result,) = tier.write([exact], durable=True)
    assert result.outcome is WriteOutcome.REPLACED
    entry = entry_of(tier, exact.id)
    assert (entry.provenance, entry.length_bytes, entry.checksum) == (EXACT, 950, factory.looked_up(exact.checksum))
    assert entry.generation == result.generation != before.generation
    assert write(tier, other) == [WriteOutcome.DUPLICATE]
    assert entry_of(tier, exact.id) == entry
    assert fetch(tier, [exact.id]) == [exact.payload]
    assert factory.observer.evicted_records == {"replaced": 1}
    assert factory.observer.evicted_bytes == {"replaced": factory.kept(900, 1)}
    assert tier.usage().records == 1


def test_a_wrong_checksum_is_refused(factory: TierFactory, tier: Tier) -> None:
    good, kept = make_record(1), make_record(2, provenance=REPLAYED)
    bad = good._replace(checksum=good.checksum ^ 1)
    write(tier, kept)
    written = factory.observer.moved_bytes["write"]
    (result,) = tier.write([bad], durable=True)
    assert result == (bad.id, WriteOutcome.CORRUPT, 0)
    assert look(tier, 1) == [MissReason.NEVER_STORED]
    assert write(tier, make_record(2)._replace(checksum=5)) == [WriteOutcome.CORRUPT]
    assert factory.observer.moved_bytes["write"] == written
    assert fetch(tier, [kept.id]) == [kept.payload]
    assert write(tier, good) == [WriteOutcome.STORED]


def test_a_bad_record_does_not_take_its_neighbours_along(tier: Tier) -> None:
    before, bad, after = make_records([1, 2, 3])
    outcomes = write(tier, before, bad._replace(checksum=0), after)
    assert outcomes == [WriteOutcome.STORED, WriteOutcome.CORRUPT, WriteOutcome.STORED]
    assert look(tier, 1, 2, 3) == [None, MissReason.NEVER_STORED, None]


def test_the_same_id_twice_in_a_call(tier: Tier) -> None:
    replayed, exact = make_record(1, provenance=REPLAYED), make_record(1, content=2)
    late = make_record(1, content=3)
    results = tier.write([replayed, replayed, exact, late], durable=True)
    assert [result.outcome for result in results] == [
        WriteOutcome.STORED,
        WriteOutcome.DUPLICATE,
        WriteOutcome.REPLACED,
        WriteOutcome.DUPLICATE,
    ]
    assert results[0].generation == results[1].generation != results[2].generation == results[3].generation
    assert fetch(tier, [exact.id, exact.id]) == [exact.payload] * 2
    assert tier.usage().records == 1


def test_answers_come_in_the_order_of_the_question(tier: Tier) -> None:
    records = make_records(range(7))
    write(tier, *records)
    asked = [3, 99, 0, 3, 6, 99, 1]
    expected = [bytes(records[number].payload) if number < 7 else MissReason.NEVER_STORED for number in asked]
    ids = [make_id(number) for number in asked]
    assert fetch(tier, ids) == expected
    assert [found.id for found in tier.lookup(ids)] == ids
    assert tier.touch(ids) == 5


def test_shards_of_a_key_are_records_of_their_own(tier: Tier) -> None:
    shards = [make_record(1, shard=shard, content=shard, size=64) for shard in (0, 1, 2, MAX_SHARD)]
    assert write(tier, *shards[:3]) == [WriteOutcome.STORED] * 3
    assert reasons(tier.lookup([shards[3].id])) == [MissReason.NEVER_STORED]
    assert write(tier, shards[3]) == [WriteOutcome.STORED]
    assert fetch(tier, ids_of(shards)) == [shard.payload for shard in shards]
    assert tier.delete([shards[1].id]) == 1
    expected = [None, MissReason.NEVER_STORED, None, None]
    assert reasons(tier.lookup(ids_of(shards))) == expected


def test_keys_that_differ_in_one_bit(tier: Tier) -> None:
    keys = [bytes(32), bytes(31) + b"\x01", b"\x01" + bytes(31), b"\xff" * 32]
    records = [make_record(n, content=n)._replace(id=RecordId(key)) for n, key in enumerate(keys)]
    assert write(tier, *records[:-1]) == [WriteOutcome.STORED] * 3
    assert reasons(tier.lookup(ids_of(records)))[3] is MissReason.NEVER_STORED
    assert fetch(tier, ids_of(records[:-1])) == [record.payload for record in records[:-1]]


def test_thousands_in_a_call(tier: Tier) -> None:
    records = make_records(range(3000), size=65)
    assert set(write(tier, *records)) == {WriteOutcome.STORED}
    ids = ids_of(records)
    assert fetch(tier, ids) == [record.payload for record in records]
    assert set(write(tier, *records)) == {WriteOutcome.DUPLICATE}
    assert tier.touch(ids) == 3000
    assert tier.delete(ids[::2]) == 1500
    assert [found is None for found in reasons(tier.lookup(ids))] == [False, True] * 1500
    assert tier.usage().records == 1500


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 114_000, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, 20_000_001])
def test_payloads_of_any_size(factory: TierFactory, tier: Tier, size: int) -> None:
    record = make_record(1, size=size)
    assert write(tier, record, make_record(2)) == [WriteOutcome.STORED] * 2
    assert entry_of(tier, record.id).length_bytes == size
    assert fetch(tier, [record.id]) == [record.payload]
    assert tier.usage().live_bytes == factory.kept(size + 1000, 2)
    assert tier.delete([record.id]) == 1
    assert look(tier, 1, 2) == [MissReason.NEVER_STORED, None]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_payloads_of_any_kind(tier: Tier, kind: type) -> None:
    record = make_record(1, size=777)
    source = kind(bytes(record.payload)) if kind is not memoryview else memoryview(b"a" + record.payload)[1:]
    assert write(tier, record._replace(payload=source)) == [WriteOutcome.STORED]
    assert fetch(tier, [record.id]) == [record.payload]


@pytest.mark.parametrize("owner", ["", "acme", "é" * 32])
@pytest.mark.parametrize("supersedes", [None, bytes(32), b"\xab" * 32])
def test_the_note_of_what_it_supersedes_is_kept(tier: Tier, owner: str, supersedes: bytes | None) -> None:
    write(tier, make_record(1, owner=owner, supersedes=supersedes, provenance=REPLAYED))
    assert entry_of(tier, make_id(1)).supersedes == supersedes
    write(tier, make_record(1, owner=owner))
    assert entry_of(tier, make_id(1)).supersedes is None, "the note goes with the record that carried it"


@pytest.mark.parametrize("label", [0, 1, MAX_LABEL])
def test_the_label_of_a_wrapper_is_kept(factory: TierFactory, tier: Tier, label: int) -> None:
    write(tier, make_record(1)._replace(label=label))
    assert entry_of(tier, make_id(1)).label == (label if factory.keeps_labels else 0)


def test_a_damaged_record_is_a_miss_and_is_dropped(factory: TierFactory, tier: Tier) -> None:
    records = make_records([1, 2, 3])
    write(tier, *records)
    factory.damage(tier, records[1])
    expected = [bytes(records[0].payload), MissReason.CORRUPT, bytes(records[2].payload)]
    assert fetch(tier, ids_of(records)) == expected
    assert look(tier, 1, 2, 3) == [None, MissReason.CORRUPT, None]
    assert factory.observer.faults == {"corrupt": 1}
    assert factory.observer.evicted_records == {"corrupt": 1}
    assert tier.usage().records == 2
    again = make_record(2)
    assert write(tier, again) == [WriteOutcome.STORED]
    assert fetch(tier, [again.id]) == [again.payload]
