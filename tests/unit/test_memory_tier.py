"""What the in-process pool does beyond the contract: who goes first, what is copied, what a record costs."""

import tracemalloc

import pytest

from kvshelf_client.frames import checksum_of
from kvshelf_client.words import MissReason
from storage.base import Record
from storage.clock import ManualClock
from storage.memory import MemoryTier
from storage.memory.slots import RECORD_OVERHEAD_BYTES
from tests.support.observers import RecordingObserver
from tests.support.records import EXACT, REPLAYED, fetch, look, make_id, make_record, make_records

COST_BYTES = 1000 + RECORD_OVERHEAD_BYTES


def make(clock: ManualClock, *, records: int, observer: RecordingObserver | None = None) -> MemoryTier:
    """A pool with room for exactly that many records of 1,000 bytes."""
    return MemoryTier(clock=clock, ttl_seconds=60, budget_bytes=records * COST_BYTES, observer=observer)


def test_the_least_recently_used_goes_first() -> None:
    clock = ManualClock()
    tier = make(clock, records=3)
    tier.write(make_records([1, 2, 3]), durable=False)
    assert tier.usage().used_bytes == tier.usage().budget_bytes
    tier.touch([make_id(1)])
    look(tier, 2)
    fetch(tier, [make_id(2)])
    tier.write(make_records([3]), durable=False)
    tier.write(make_records([4]), durable=False)
    assert look(tier, 1, 2, 3, 4) == [None, MissReason.EVICTED, None, None]
    tier.write(make_records([5]), durable=False)
    assert look(tier, 1, 3, 4, 5) == [MissReason.EVICTED, None, None, None]
    tier.check_integrity()


def test_a_write_that_cannot_fit_evicts_nobody() -> None:
    observer = RecordingObserver()
    tier = make(ManualClock(), records=3, observer=observer)
    tier.write(make_records([1, 2, 3]), durable=False)
    hold = tier.hold([make_id(2)])
    (result,) = tier.write([make_record(4, size=2 * COST_BYTES)], durable=False)
    assert result.outcome == "full"
    assert look(tier, 1, 2, 3) == [None] * 3
    assert not observer.evicted_records
    hold.release()
    (result,) = tier.write([make_record(4, size=2 * COST_BYTES)], durable=False)
    assert result.outcome == "stored"


def test_a_replacement_uses_the_room_of_what_it_replaces() -> None:
    tier = make(ManualClock(), records=2)
    tier.write([make_record(1, provenance=REPLAYED), make_record(2)], durable=False)
    assert tier.write([make_record(1, content=3)], durable=False)[0].outcome == "replaced"
    assert look(tier, 1, 2) == [None, None]
    tier = make(ManualClock(), records=2)
    tier.write([make_record(1, provenance=REPLAYED), make_record(2)], durable=False)
    hold = tier.hold([make_id(1)])
    assert tier.write([make_record(1, content=3)], durable=False)[0].outcome == "replaced"
    assert look(tier, 1, 2) == [None, MissReason.EVICTED], "the held one still takes its room"
    assert tier.usage().used_bytes == 2 * COST_BYTES
    hold.release()
    assert tier.usage().used_bytes == COST_BYTES


def test_a_replacement_that_does_not_fit_leaves_the_old_one() -> None:
    tier = make(ManualClock(), records=1)
    old = make_record(1, provenance=REPLAYED)
    tier.write([old], durable=False)
    hold = tier.hold([old.id])
    (result,) = tier.write([make_record(1)], durable=False)
    assert (result.outcome, result.generation) == ("full", 1)
    assert fetch(tier, [old.id]) == [old.payload]
    hold.release()


def test_the_expired_go_before_the_living_under_pressure() -> None:
    clock, observer = ManualClock(), RecordingObserver()
    tier = make(clock, records=3, observer=observer)
    tier.write(make_records([1, 2]), durable=False)
    clock.advance(61)
    tier.write(make_records([3, 4, 5]), durable=False)
    assert look(tier, 1, 2, 3, 4, 5) == [MissReason.EXPIRED] * 2 + [None] * 3
    assert observer.evicted_records == {"expired": 2}
    assert observer.ages == [60.0, 60.0]


@pytest.mark.parametrize("step_seconds", [-1e6, 1e6])
def test_a_clock_that_steps_expires_nothing(step_seconds: float) -> None:
    clock = ManualClock()
    tier = make(clock, records=3)
    tier.write(make_records([1]), durable=False)
    clock.step(step_seconds)
    tier.maintain()
    assert look(tier, 1) == [None]
    clock.advance(60)
    assert look(tier, 1) == [MissReason.EXPIRED]


def test_a_view_of_a_larger_buffer_does_not_pin_it() -> None:
    tier = make(ManualClock(), records=3)
    buffer = bytearray(b"x" * 5000)
    view = memoryview(buffer)[1000:2000]
    tier.write([Record(make_id(1), view, checksum_of(view), EXACT)], durable=False)
    view.release()
    buffer.clear()  # BufferError while anybody holds a view
    assert fetch(tier, [make_id(1)]) == [b"x" * 1000]


def test_what_is_loaded_cannot_be_written_to() -> None:
    tier = make(ManualClock(), records=3)
    tier.write(make_records([1]), durable=False)
    hold = tier.hold([make_id(1)])
    (loaded,) = hold.read(0, 1)
    assert not isinstance(loaded, type(None))
    assert memoryview(loaded.payload).readonly  # type: ignore[union-attr]  # a miss has no payload and fails here
    hold.release()


def test_the_overhead_is_about_what_a_record_takes() -> None:
    tier = MemoryTier(clock=ManualClock(), ttl_seconds=60, budget_bytes=1 << 30)
    records = make_records(range(2000), size=1)
    tracemalloc.start()
    tier.write([record._replace(payload=bytes(record.payload)) for record in records], durable=False)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert RECORD_OVERHEAD_BYTES / 4 < taken / 2000 < RECORD_OVERHEAD_BYTES


@pytest.mark.parametrize(("ttl_seconds", "budget_bytes"), [(0, 1), (-1, 1), (1, 0)])
def test_nonsense_is_refused(ttl_seconds: float, budget_bytes: int) -> None:
    with pytest.raises(ValueError):
        MemoryTier(clock=ManualClock(), ttl_seconds=ttl_seconds, budget_bytes=budget_bytes)
