"""The tier contract, part 6: what is told of a payload while it is read."""

import pytest

from kvshelf_client.words import MissReason
from storage.base import Entry, Loaded, Miss, Tier
from tests.support.records import REPLAYED, ids_of, make_id, make_record, make_records
from tests.support.tiers import TierFactory


class Told:
    """Remembers what it is told of, and what of the payload was there by then."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.entries: set[Entry] = set()
        self.parts: list[bytes] = []
        self.length_bytes = 0

    def __call__(self, entry: Entry, payload: memoryview, arrived_bytes: int) -> None:
        self.counts.append(arrived_bytes)
        self.entries.add(entry)
        self.parts.append(bytes(payload[:arrived_bytes]))
        self.length_bytes = len(payload)

    @property
    def is_whole(self) -> bool:
        """Whether it was told that all is there."""
        return self.length_bytes in self.counts


@pytest.mark.parametrize("size", [1, 1000, 200_000, 3_000_000])
def test_what_is_told_of_a_use_is_what_it_returns(tier: Tier, size: int) -> None:
    record = make_record(1, size=size)
    tier.write([record], durable=True)
    told = Told()
    (used,) = tier.use(tier.hold([record.id]), 0, 1, told)
    assert isinstance(used, Loaded)
    assert bytes(used.payload) == record.payload
    assert told.counts == sorted(set(told.counts))
    assert all(part == record.payload[: len(part)] for part in told.parts)
    if told.counts:
        assert told.is_whole
        (entry,) = told.entries
        assert entry[:5] == used.entry[:5], "id, provenance, length, checksum and generation"


def test_nothing_is_told_of_what_is_not_read(tier: Tier) -> None:
    tier.write(make_records([1, 2], size=500_000), durable=True)
    told = Told()
    absent = tier.hold([make_id(99)])
    assert tier.use(absent, 0, 1, told) == [Miss(make_id(99), MissReason.NEVER_STORED)]
    assert tier.use(absent, 0, 0, told) == []
    both = tier.hold([make_id(1), make_id(2)])
    assert all(isinstance(one, Loaded) for one in tier.use(both, 0, 2, told))
    assert not told.counts


def test_of_a_bad_payload_never_all_is_told(factory: TierFactory, tier: Tier) -> None:
    record = make_record(1, size=1_000_000)
    tier.write([record], durable=True)
    hold = tier.hold([record.id])
    factory.damage(tier, record)
    told = Told()
    assert tier.use(hold, 0, 1, told) == [Miss(record.id, MissReason.CORRUPT)]
    assert not told.is_whole
    assert factory.observer.faults == {"corrupt": 1}


def test_nothing_is_told_of_a_record_that_is_not_the_one_held(factory: TierFactory, tier: Tier) -> None:
    if factory.holds_are_firm:
        return
    record = make_record(1, size=1_000_000)
    for other in (make_record(1, size=999_999), make_record(1, size=1_000_000, content=2, provenance=REPLAYED)):
        tier.write([record], durable=True)
        hold = tier.hold(ids_of([record]))
        tier.delete([record.id])
        tier.write([other], durable=True)
        told = Told()
        assert tier.use(hold, 0, 1, told) == [Miss(record.id, MissReason.EVICTED)]
        assert not told.counts
        tier.delete([record.id])
