"""The tier contract, part 5: going through all records of a prefix, and erasing for good."""

import hashlib

import pytest

from kvshelf_client.frames import checksum_of
from kvshelf_client.words import MissReason
from storage.base import Record, RecordId, Tier
from tests.support.records import EXACT, fetch, look, make_id, make_record, make_records, reasons
from tests.support.tiers import TierFactory

PREFIXES = [b"namespc%d" % number for number in range(3)]


def named(prefix: bytes, number: int, shard: int = 0) -> Record:
    payload = bytearray(hashlib.sha256(b"%d" % number).digest() * 20)
    key = prefix + hashlib.sha256(b"%d" % number).digest()[len(prefix) :]
    return Record(RecordId(key, shard), payload, checksum_of(payload), EXACT)


def scan_all(tier: Tier, prefix: bytes, limit: int) -> list[RecordId]:
    found: list[RecordId] = []
    cursor: bytes | None = b""
    while cursor is not None:
        page = tier.scan(prefix, cursor, limit)
        assert all(entry.id.key.startswith(prefix) for entry in page.entries)
        found += [entry.id for entry in page.entries]
        cursor = page.cursor
    return found


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_a_scan_finds_all_of_a_prefix_and_nothing_else(tier: Tier, limit: int) -> None:
    records = [named(prefix, number, shard) for prefix in PREFIXES for number in range(9) for shard in (0, 1)]
    tier.write(records, durable=True)
    for prefix in [*PREFIXES, b"namesp", records[0].id.key, b"nothing"]:
        wanted = {record.id for record in records if record.id.key.startswith(prefix)}
        assert set(scan_all(tier, prefix, limit)) == wanted
    assert {record.id for record in records} == set(scan_all(tier, b"", limit))


def test_an_empty_tier_has_nothing_to_go_through(tier: Tier) -> None:
    assert scan_all(tier, b"", 10) == []


def test_a_scan_survives_erasing_behind_it(tier: Tier) -> None:
    records = [named(PREFIXES[0], number) for number in range(50)]
    tier.write(records, durable=True)
    erased = 0
    for _ in range(100):
        page = tier.scan(PREFIXES[0], b"", 7)
        erased += tier.erase([entry.id for entry in page.entries])
        if page.cursor is None and not page.entries:
            break
    assert (erased, tier.usage().records) == (50, 0)


def test_what_is_erased_is_gone_for_holds_too(tier: Tier) -> None:
    tier.write(make_records(range(5)), durable=True)
    hold = tier.hold([make_id(number) for number in range(5)])
    assert tier.erase([make_id(1), make_id(3), make_id(99)]) == 2
    assert reasons(hold.read(0, 5)) == [None, MissReason.NEVER_STORED, None, MissReason.NEVER_STORED, None]
    hold.release()
    assert look(tier, 0, 1, 2, 3, 4) == [None, MissReason.NEVER_STORED, None, MissReason.NEVER_STORED, None]
    tier.write([make_record(1, content=8)], durable=True)
    assert fetch(tier, [make_id(1)]) == [make_record(1, content=8).payload]


def test_erasing_is_counted_as_a_deletion_and_as_no_fault(factory: TierFactory, tier: Tier) -> None:
    tier.write(make_records([1]), durable=True)
    hold = tier.hold([make_id(1)])
    tier.erase([make_id(1)])
    hold.read(0, 1)
    hold.release()
    assert factory.observer.evicted_records == {"deleted": 1}
    assert factory.observer.faults == {}
    assert (tier.usage().records, tier.usage().live_bytes) == (0, 0)


def test_wiping_comes_to_an_end_and_leaves_what_is_live(tier: Tier) -> None:
    tier.write(make_records(range(20)), durable=True)
    tier.delete([make_id(number) for number in range(0, 20, 2)])
    cursor: int | None = 0
    for _ in range(200):
        if cursor is None:
            break
        cursor = tier.wipe(cursor).cursor
    assert cursor is None
    kept = [make_id(number) for number in range(1, 20, 2)]
    assert fetch(tier, kept) == [record.payload for record in make_records(range(1, 20, 2))]
