"""A device in trouble: misses and outcomes, never an exception, never an index that names what was not written."""

import errno

import pytest

from kvshelf_client.words import MissReason
from storage.base import WriteOutcome
from storage.ssd.format import padded_bytes
from tests.support.records import REPLAYED, fetch, look, make_id, make_record, make_records
from tests.support.ssd import BLOCK_BYTES, Device, SsdShelf, alive, fill, ids

MIB = 1 << 20


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failed_write_is_an_outcome_and_names_nothing(shelf: SsdShelf, operation: str) -> None:
    device = Device()
    tier = shelf.open(make_files=device)
    fill(tier, 0, 5)
    with device.files.fails(operation):
        results = tier.write(make_records(range(3, 8), size=900), durable=True)
        assert tier.is_up(), "what is there is served"
        assert "cannot be written" in (tier.trouble() or "")
        tier.maintain()
        assert tier.trouble() is not None, "upkeep sees that it is not over"
    assert [result.outcome for result in results] == [WriteOutcome.TIER_DOWN] * 5
    assert look(tier, 5, 6, 7) == [MissReason.NEVER_STORED] * 3
    assert alive(tier, range(8)) == list(range(5))
    assert shelf.observer.faults["io"] >= 1
    tier.maintain()
    assert tier.trouble() is None, "upkeep sees that it is over"
    tier.check_integrity()
    fill(tier, 5, 20)
    assert tier.is_up()
    assert alive(tier, range(25)) == list(range(25))
    tier.close()
    assert alive(shelf.open(), range(25)) == list(range(25))


def test_a_failed_replacement_keeps_the_old_record(shelf: SsdShelf) -> None:
    device = Device()
    tier = shelf.open(make_files=device)
    replayed = make_record(1, provenance=REPLAYED, content=2)
    tier.write([replayed], durable=True)
    with device.files.fails("sync"):
        assert tier.write([make_record(1)], durable=False)[0].outcome is WriteOutcome.TIER_DOWN
    assert fetch(tier, [make_id(1)]) == [replayed.payload]
    assert tier.write([make_record(1)], durable=False)[0].outcome is WriteOutcome.REPLACED
    assert fetch(tier, [make_id(1)]) == [make_record(1).payload]


def test_a_bad_place_is_a_corrupt_record_and_its_neighbours_are_served(shelf: SsdShelf) -> None:
    device = Device()
    tier = shelf.open(make_files=device)
    fill(tier, 0, 5)
    device.files.bad_places = frozenset({(1, 2 * padded_bytes(BLOCK_BYTES))})
    assert [type(one) for one in fetch(tier, ids(range(5)))] == [bytes, bytes, MissReason, bytes, bytes]
    assert look(tier, *range(5)) == [None, None, MissReason.CORRUPT, None, None]
    assert tier.is_up()
    assert "1 reads of" in (tier.trouble() or "")
    assert tier.usage().records == 4, "it is dropped"
    assert shelf.observer.faults == {"io": 1, "corrupt": 1}
    (event,) = shelf.observer.events
    assert event[0] == "record_corrupt"
    assert event[1]["why"] == "Input/output error"
    assert event[1]["key"] == make_id(2).key.hex()[:12]
    fill(tier, 2, 1)
    assert alive(tier, range(5)) == list(range(5)), "stored again, it is elsewhere"
    shelf.clock.advance(601)
    assert tier.trouble() is None
    tier.check_integrity()


def test_a_medium_that_reads_nothing_is_down_and_keeps_its_records(shelf: SsdShelf) -> None:
    device = Device()
    tier = shelf.open(make_files=device)
    fill(tier, 0, 30)
    with device.files.fails("read"):
        reasons = fetch(tier, ids(range(30)))
        assert reasons[:8] == [MissReason.CORRUPT] * 8
        assert reasons[8:] == [MissReason.TIER_DOWN] * 22, "not every record is bad: the medium is"
        assert not tier.is_up()
        assert "cannot be read" in (tier.trouble() or "")
        tier.maintain()
        assert not tier.is_up()
    assert alive(tier, range(30)) == list(range(8, 30))
    assert tier.is_up()
    assert [event for event, _ in shelf.observer.events[-2:]] == ["medium_failed", "medium_recovered"]


def test_a_process_in_trouble_loses_no_record(shelf: SsdShelf) -> None:
    device = Device()
    tier = shelf.open(make_files=device)
    fill(tier, 0, 3)
    with device.files.fails("read", code=errno.EMFILE):
        assert fetch(tier, ids(range(3))) == [MissReason.TIER_DOWN] * 3
    assert alive(tier, range(3)) == [0, 1, 2]


def test_a_file_system_without_room_is_as_a_smaller_budget(shelf: SsdShelf) -> None:
    device = Device()
    tier = shelf.open(32 * MIB, make_files=device)
    fill(tier, 0, 60)
    with device.files.fails("create", code=errno.ENOSPC):
        fill(tier, 1000, 60)
        assert len(device.files.sizes()) < 12
        assert "no room left" in (tier.trouble() or "")
    assert alive(tier, range(1030, 1060)) == list(range(1030, 1060))
    assert tier.is_up()
    fill(tier, 2000, 60)
    assert len(device.files.sizes()) < 12, "it does not ask again at once"
    shelf.clock.advance(60)
    fill(tier, 3000, 200)
    assert len(device.files.sizes()) > 20
    assert tier.usage().used_bytes <= 32 * MIB


def test_no_room_for_the_first_segment_is_full(shelf: SsdShelf) -> None:
    device = Device()
    tier = shelf.open(make_files=device)
    with device.files.fails("create", code=errno.ENOSPC):
        (result,) = tier.write([make_record(1)], durable=True)
    assert result.outcome is WriteOutcome.FULL
    assert tier.is_up()
    assert "no room left" in (tier.trouble() or "")
    tier.maintain()
    assert tier.trouble() is None, "the file system says that it has room"
    shelf.clock.advance(60)
    assert tier.write([make_record(1)], durable=True)[0].outcome is WriteOutcome.STORED


@pytest.mark.parametrize("operations", [["write"], ["sync"], ["create"], ["read", "write"]])
def test_faults_while_space_is_taken_back(shelf: SsdShelf, operations: list[str]) -> None:
    device = Device()
    tier = shelf.open(8 * MIB, make_files=device)
    fill(tier, 0, 80)
    newest = alive(tier, range(80))
    tier.touch([make_id(number) for number in newest])
    with device.files.fails(*operations):
        for number in range(1000, 1040):
            tier.write([make_record(number, size=100_000)], durable=True)
        tier.maintain()
    tier.check_integrity()
    fill(tier, 2000, 30)
    assert alive(tier, range(2000, 2030)) == list(range(2000, 2030))
    tier.check_integrity()
    tier.close()
    tier = shelf.open(8 * MIB)
    tier.check_integrity()
    assert alive(tier, range(2000, 2030)) == list(range(2000, 2030))
