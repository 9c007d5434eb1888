"""A device in trouble: misses and outcomes, never an exception, never an index that names what was not written."""

import errno

import pytest

from kvshelf_client.words import MissReason
from storage.base import WriteOutcome
from tests.support.records import REPLAYED, fetch, look, make_id, make_record, make_records
from tests.support.ssd import FaultySegmentFiles, SsdShelf, alive, fill, ids

MIB = 1 << 20


class Device:
    """Makes the faulty files of one tier, and keeps hold of them."""

    def __init__(self) -> None:
        self.made: list[FaultySegmentFiles] = []

    def __call__(self, directory: object) -> FaultySegmentFiles:
        self.made.append(FaultySegmentFiles(directory))  # type: ignore[arg-type]
        return self.made[-1]

    @property
    def files(self) -> FaultySegmentFiles:
        return self.made[-1]


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failed_write_is_an_outcome_and_names_nothing(shelf: SsdShelf, operation: str) -> None:
    device = Device()
    tier = shelf.open(make_files=device)
    fill(tier, 0, 5)
    with device.files.fails(operation):
        results = tier.write(make_records(range(3, 8), size=900), durable=True)
        assert not tier.is_up()
    assert [result.outcome for result in results] == [WriteOutcome.TIER_DOWN] * 5
    assert look(tier, 5, 6, 7) == [MissReason.NEVER_STORED] * 3
    assert alive(tier, range(8)) == list(range(5))
    assert shelf.observer.faults == {"io": 1}
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


def test_a_failed_read_is_a_miss_and_loses_nothing(shelf: SsdShelf) -> None:
    device = Device()
    tier = shelf.open(make_files=device)
    fill(tier, 0, 5)
    with device.files.fails("read"):
        assert fetch(tier, ids(range(5))) == [MissReason.TIER_DOWN] * 5
        assert look(tier, *range(5)) == [None] * 5, "the index can be read"
        assert not tier.is_up()
    assert alive(tier, range(5)) == list(range(5))
    assert tier.is_up()


def test_a_file_system_without_room_is_as_a_smaller_budget(shelf: SsdShelf) -> None:
    device = Device()
    tier = shelf.open(32 * MIB, make_files=device)
    fill(tier, 0, 60)
    with device.files.fails("create", code=errno.ENOSPC):
        fill(tier, 1000, 60)
        assert len(device.files.sizes()) < 12
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
