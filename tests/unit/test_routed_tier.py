"""Calls about several shelves at once: taken apart, and put together again in the order of the call."""

import pytest

from storage.base import Entry, Loaded, Miss, RecordId
from storage.clock import ManualClock
from storage.memory import MemoryTier
from storage.routed import RoutedTier
from storage.routed.hold import RoutedHold
from tests.support.records import make_record
from tests.support.tiers import halves

RECORDS = [make_record(number, size=number + 1) for number in range(40)]
IDS = [record.id for record in RECORDS]


def memory(name: str = "dram") -> MemoryTier:
    return MemoryTier(clock=ManualClock(), ttl_seconds=60, budget_bytes=1 << 20, name=name)


@pytest.fixture
def tier() -> RoutedTier:
    made = RoutedTier({"even": memory(), "odd": memory()}, halves, prefix_bytes=8)
    made.write(RECORDS, durable=False)
    return made


def test_the_records_are_on_the_shelves_their_ids_say(tier: RoutedTier) -> None:
    for name, shelf in tier.shelves.items():
        there = [one.id for one in shelf.lookup(IDS) if isinstance(one, Entry)]
        assert there == [record_id for record_id in IDS if halves(record_id.key) == name]
        assert len(there) > 5
    assert tier.usage().records == len(RECORDS)
    assert tier.usage().budget_bytes == 2 << 20


def test_a_call_about_one_shelf_is_that_shelfs_own(tier: RoutedTier) -> None:
    even = [record_id for record_id in IDS if halves(record_id.key) == "even"]
    hold = tier.hold(even)
    assert not isinstance(hold, RoutedHold)
    hold.release()
    mixed = tier.hold(IDS)
    assert isinstance(mixed, RoutedHold)
    mixed.release()


@pytest.mark.parametrize(("start", "end"), [(0, 40), (0, 0), (3, 17), (39, 40), (40, 40), (5, 400)])
def test_holds_over_shelves_read_and_narrow_by_the_order_of_the_call(tier: RoutedTier, start: int, end: int) -> None:
    hold = tier.hold([*IDS, RecordId(bytes(32))])
    read = hold.read(start, end)
    assert [one.entry.id for one in read if isinstance(one, Loaded)] == IDS[start:end]
    assert [bytes(one.payload) for one in read if isinstance(one, Loaded)] == [
        bytes(record.payload) for record in RECORDS[start:end]
    ]
    hold.keep(start, end)
    assert hold.entries == tier.lookup([*IDS, RecordId(bytes(32))])[start:end]
    assert hold.read(0, 3) == read[:3]
    hold.keep(1, 2)
    assert hold.read(0, 5) == read[1:2]
    hold.release()
    assert tier.usage().pinned_bytes == 0
    with pytest.raises(ValueError, match="released"):
        hold.read(0, 1)


def test_what_goes_wrong_on_one_shelf_leaves_nothing_held_on_another(tier: RoutedTier) -> None:
    tier.shelves["odd"].close()
    with pytest.raises(ValueError, match="closed"):
        tier.hold(IDS)
    assert tier.shelves["even"].usage().pinned_bytes == 0
    assert not tier.is_up()


def test_only_shelves_of_one_kind_make_a_tier() -> None:
    with pytest.raises(ValueError, match="one kind"):
        RoutedTier({"a": memory("ssd"), "b": memory("dram")}, halves, prefix_bytes=8)
    with pytest.raises(ValueError, match="one kind"):
        RoutedTier({}, halves, prefix_bytes=8)


def test_the_shelf_is_asked_for_once_a_prefix() -> None:
    asked: list[bytes] = []

    def shelf_of(prefix: bytes) -> str:
        asked.append(prefix)
        return "a"

    routed = RoutedTier({"a": memory()}, shelf_of, prefix_bytes=4)
    assert all(isinstance(one, Miss) for one in routed.lookup([*IDS, *IDS]))
    assert sorted(asked) == sorted({record_id.key[:4] for record_id in IDS})
    assert routed.lookup([]) == []
    assert len(asked) == len(IDS)
