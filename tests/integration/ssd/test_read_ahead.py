"""Reads past the page cache: from memory, ahead, together, and each once however many ask."""

import errno
import os
import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kvshelf_client.words import MissReason
from storage.base import Entry, Hold, Loaded
from storage.ssd import SsdTier
from storage.ssd.format import PAGE_BYTES
from storage.ssd.hold import SsdHold
from storage.ssd.kernel_io import KernelIO, Request
from storage.ssd.loading import Place
from storage.ssd.segments import SegmentFiles
from tests.support.damage import damage_on_disk
from tests.support.observers import RecordingObserver
from tests.support.records import entry_of, fetch, make_id, make_record, make_records, reasons
from tests.support.ssd import BLOCK_BYTES, HOUR_SECONDS, FaultySegmentFiles, SsdShelf, fill

MEMORY_BYTES = 8 << 20
SOON = 10.0


class CountingFiles(FaultySegmentFiles):
    """Segment files that note the reads, and hold them up while the gate is shut."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.reads: list[int] = []
        """How many records each read was of."""
        self.gate = threading.Event()
        self.gate.set()

    def read(self, number: int, offset: int, images: Sequence[memoryview]) -> None:
        self.reads.append(len(images))
        assert self.gate.wait(SOON)
        super().read(number, offset, images)


class TakingFiles(SegmentFiles):
    """Segment files that count what the kernel has taken."""

    begun = 0

    def begin(self, kernel: KernelIO, requests: Sequence[Request]) -> int:
        begun = super().begin(kernel, requests)
        self.begun += sum(len(one.images) for one in requests[:begun] if not one.is_write)
        return begun


def taking_files() -> tuple[Callable[[Path], SegmentFiles], list[TakingFiles]]:
    """Makes such files for a tier, and where they will be."""
    made: list[TakingFiles] = []

    def make(directory: Path) -> SegmentFiles:
        made.append(TakingFiles(directory))
        return made[-1]

    return make, made


def cold(shelf: SsdShelf, count: int, memory_bytes: int = MEMORY_BYTES) -> tuple[SsdTier, CountingFiles]:
    """Records 0 to ``count`` of a block's size, in a tier that was opened after they were written."""
    tier = shelf.open()
    tier.write(make_records(range(count), size=BLOCK_BYTES), durable=True)
    tier.close()
    made: list[CountingFiles] = []

    def make_files(directory: Path) -> SegmentFiles:
        made.append(CountingFiles(directory))
        return made[0]

    return shelf.open(memory_bytes=memory_bytes, make_files=make_files), made[0]


def hold_of(tier: SsdTier, count: int) -> Hold:
    return tier.hold([make_id(number) for number in range(count)])


def are_right(results: Sequence[object], count: int) -> bool:
    return [bytes(one.payload) for one in results if isinstance(one, Loaded)] == [
        record.payload for record in make_records(range(count), size=BLOCK_BYTES)
    ]


def test_what_was_stored_is_served_without_the_disk(shelf: SsdShelf) -> None:
    tier, files = cold(shelf, 0)
    tier.write(make_records(range(5), size=BLOCK_BYTES), durable=True)
    with files.fails("read"):
        assert are_right(hold_of(tier, 5).read(0, 5), 5)
    assert shelf.observer.moved_bytes == {"write": 5 * BLOCK_BYTES, "memory": 5 * BLOCK_BYTES}
    assert files.reads == []


def test_a_second_read_is_from_memory(shelf: SsdShelf) -> None:
    tier, files = cold(shelf, 5)
    hold = hold_of(tier, 5)
    assert are_right(hold.read(0, 5), 5)
    before = len(files.reads)
    assert are_right(hold.read(0, 5), 5)
    assert len(files.reads) == before
    hold.release()


def test_neighbours_are_read_together(shelf: SsdShelf) -> None:
    tier, files = cold(shelf, 8)
    hold = hold_of(tier, 8)
    assert are_right(hold.read(0, 8), 8)
    assert files.reads == [8]
    hold.release()


def test_what_is_expected_is_read_before_it_is_asked_for(shelf: SsdShelf) -> None:
    tier, files = cold(shelf, 8)
    hold = hold_of(tier, 8)
    files.gate.clear()
    hold.expect(0, 8)
    hold.expect(4, 8)
    files.gate.set()
    assert are_right(hold.read(0, 8), 8)
    assert sum(files.reads) == 8, "each record once"
    hold.release()


def test_many_readers_of_the_same_read_it_once(shelf: SsdShelf) -> None:
    tier, files = cold(shelf, 8)
    holds = [hold_of(tier, 8) for _ in range(8)]
    files.gate.clear()
    with ThreadPoolExecutor(8) as threads:
        reads = [threads.submit(hold.read, 0, 8) for hold in holds]
        files.gate.set()
        assert all(are_right(read.result(SOON), 8) for read in reads)
    assert sum(files.reads) == 8
    for hold in holds:
        hold.release()


def test_a_read_ahead_that_fails_is_no_news_until_it_is_asked_for(shelf: SsdShelf) -> None:
    tier, files = cold(shelf, 3)
    hold = hold_of(tier, 3)
    files.gate.clear()
    with files.fails("read", code=errno.EMFILE):
        hold.expect(0, 3)
        files.gate.set()
        assert reasons(hold.read(0, 3)) == [MissReason.TIER_DOWN] * 3
    assert are_right(hold.read(0, 3), 3)
    hold.release()


def test_one_bad_place_among_neighbours_is_one_miss(shelf: SsdShelf) -> None:
    tier, files = cold(shelf, 4)
    hold = hold_of(tier, 4)
    assert isinstance(hold, SsdHold)
    segment, page = hold._spots[2]
    files.bad_places = frozenset({(segment, page * PAGE_BYTES)})
    assert reasons(hold.read(0, 4)) == [None, None, MissReason.CORRUPT, None]
    hold.release()


def test_without_memory_reads_are_right_and_nothing_is_read_ahead(shelf: SsdShelf) -> None:
    tier, files = cold(shelf, 4, memory_bytes=0)
    hold = hold_of(tier, 4)
    hold.expect(0, 4)
    assert files.reads == []
    for _ in range(2):
        assert are_right(hold.read(0, 4), 4)
    assert sum(files.reads) == 8
    hold.release()


def test_a_hold_that_is_released_while_it_is_read_lets_go_afterwards(shelf: SsdShelf) -> None:
    tier, files = cold(shelf, 2)
    hold = hold_of(tier, 2)
    files.gate.clear()
    with ThreadPoolExecutor(1) as threads:
        read = threads.submit(hold.read, 0, 2)
        while not files.reads:
            pass
        hold.release()
        assert tier.usage().pinned_bytes > 0
        files.gate.set()
        assert are_right(read.result(SOON), 2)
    assert tier.usage().pinned_bytes == 0


def test_a_record_that_is_gone_is_gone_from_memory_too(shelf: SsdShelf) -> None:
    tier = shelf.open(memory_bytes=MEMORY_BYTES)
    tier.write(make_records(range(3), size=BLOCK_BYTES), durable=True)
    assert tier._core.memory.used_bytes > 0
    tier.delete([make_id(number) for number in range(3)])
    assert tier._core.memory.used_bytes == 0


def test_segments_that_are_used_again_answer_for_nothing_they_had(shelf: SsdShelf) -> None:
    """Memory for everything, and a budget that is written over several times."""
    tier = shelf.open(memory_bytes=256 << 20)
    for start in range(0, 2000, 100):
        fill(tier, start, 100)
        held = [
            one for one in fetch(tier, [make_id(number) for number in range(start + 100)]) if isinstance(one, bytes)
        ]
        assert len(held) >= 100
        kept = tier._core.memory
        assert kept.used_bytes <= tier.usage().live_bytes + len(kept._payloads) * 4096
    for number in range(2000):
        (result,) = fetch(tier, [make_id(number)])
        assert result == make_record(number, size=BLOCK_BYTES).payload or not isinstance(result, bytes)


def test_a_record_that_is_carried_forward_stays_in_memory_under_its_generation(shelf: SsdShelf) -> None:
    tier = shelf.open(memory_bytes=256 << 20)
    fill(tier, 0, 100)
    shelf.clock.advance(60 * HOUR_SECONDS)
    before = entry_of(tier, make_id(0))
    tier.touch([make_id(0)])
    shelf.clock.advance(13 * HOUR_SECONDS)
    for _ in range(10):
        tier.maintain()
    assert entry_of(tier, make_id(0)).generation == before.generation
    assert fetch(tier, [make_id(0)]) == [make_record(0, size=BLOCK_BYTES).payload]
    assert tier._core.memory.used_bytes < 2 * BLOCK_BYTES, "the expired are gone"


def test_many_scattered_records_are_read_by_the_kernel(shelf: SsdShelf) -> None:
    """More than are under way at a time, one of them damaged, asked for by several at once."""
    tier = shelf.open()
    tier.write(make_records(range(100), size=BLOCK_BYTES), durable=True)
    tier.close()
    damage_on_disk(shelf.directory, make_id(37), BLOCK_BYTES)
    files, made = taking_files()
    tier = shelf.open(memory_bytes=64 << 20, make_files=files)
    order = [number * 37 % 100 for number in range(100)]
    holds = [tier.hold([make_id(number) for number in order]) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        for hold in holds:
            hold.expect(0, 100)
        found = list(threads.map(lambda hold: hold.read(0, 100), holds))
    for results in found:
        for number, one in zip(order, results, strict=True):
            assert isinstance(one, Loaded) == (number != 37)
            assert not isinstance(one, Loaded) or bytes(one.payload) == make_record(number, size=BLOCK_BYTES).payload
    assert made[0].begun >= 100, "what came between a look into memory and a read is read again"
    for hold in holds:
        hold.release()


def test_many_scattered_records_are_read_by_threads_where_the_kernel_takes_none(shelf: SsdShelf) -> None:
    tier, files = cold(shelf, 100, 64 << 20)
    hold = tier.hold([make_id(number * 37 % 100) for number in range(100)])
    hold.expect(0, 100)
    results = hold.read(0, 100)
    hold.release()
    assert {one.entry.id for one in results if isinstance(one, Loaded)} == {make_id(number) for number in range(100)}
    assert sum(files.reads) >= 100


def test_a_segment_that_was_cut_short_is_read_as_far_as_it_goes(shelf: SsdShelf) -> None:
    tier = shelf.open()
    tier.write(make_records(range(20), size=BLOCK_BYTES), durable=True)
    tier.close()
    files, made = taking_files()
    tier = shelf.open(memory_bytes=MEMORY_BYTES, make_files=files)
    hold = hold_of(tier, 20)
    assert isinstance(hold, SsdHold)
    segment, page = hold._spots[12]
    path = made[0].path(segment)
    size_bytes = path.stat().st_size
    os.truncate(path, (page + 1) * PAGE_BYTES)
    results = hold.read(0, 20)
    os.truncate(path, size_bytes)
    assert are_right(results[:12], 12)
    assert reasons(results[12:13]) == [MissReason.CORRUPT]
    assert made[0].begun == 20
    hold.release()


def test_what_is_read_ahead_ends_before_a_tier_is_closed(shelf: SsdShelf) -> None:
    tier = shelf.open()
    tier.write(make_records(range(60), size=BLOCK_BYTES), durable=True)
    tier.close()
    tier = shelf.open(memory_bytes=64 << 20)
    hold_of(tier, 60).expect(0, 60)
    tier.close()
    assert not [one for one in threading.enumerate() if one.name == "kvshelf-reads"]


def test_a_file_system_without_direct_access_will_do(shelf: SsdShelf, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refusing(path: str, flags: int, *rest: int, **named: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct access here")
        return opened(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refusing)
    tier = shelf.open()
    tier.write(make_records(range(3)), durable=True)
    assert fetch(tier, [make_id(number) for number in range(3)]) == [
        record.payload for record in make_records(range(3))
    ]


def test_damage_is_found_beneath_a_copy_in_memory(shelf: SsdShelf) -> None:
    tier = shelf.open(memory_bytes=MEMORY_BYTES)
    tier.write(make_records(range(3), size=BLOCK_BYTES), durable=True)
    damage_on_disk(shelf.directory, make_id(1), BLOCK_BYTES)
    hold = hold_of(tier, 3)
    assert are_right(hold.read(0, 3), 3), "a reader is served what was verified"
    assert reasons(hold.reread(0, 3)) == [None, MissReason.CORRUPT, None]
    hold.release()
    assert reasons(tier.lookup([make_id(number) for number in range(3)])) == [None, MissReason.CORRUPT, None]


class DeafObserver(RecordingObserver):
    """An observer that cannot take in what was read, until it hears."""

    hears = False

    def moved(self, tier: str, operation: str, payload_bytes: int) -> None:
        if operation == "read" and not self.hears:
            raise RuntimeError("nobody listens")
        super().moved(tier, operation, payload_bytes)


def test_what_goes_wrong_behind_a_read_reaches_who_asked_and_nobody_waits_for_ever(shelf: SsdShelf) -> None:
    tier = shelf.open()
    tier.write(make_records(range(20), size=BLOCK_BYTES), durable=True)
    tier.close()
    shelf.observer = observer = DeafObserver()
    tier = shelf.open(memory_bytes=MEMORY_BYTES, make_files=taking_files()[0])
    hold = hold_of(tier, 20)
    for _ in range(2):
        with ThreadPoolExecutor(1) as threads, pytest.raises(RuntimeError, match="nobody listens"):
            threads.submit(hold.read, 0, 20).result(SOON)
    observer.hears = True
    assert are_right(hold.read(0, 20), 20)
    hold.release()


def test_a_record_that_cannot_be_looked_at_gives_no_other_one_its_payload(shelf: SsdShelf) -> None:
    tier = shelf.open()
    tier.write(make_records(range(3), size=BLOCK_BYTES), durable=True)
    tier.close()
    tier = shelf.open(memory_bytes=MEMORY_BYTES, make_files=taking_files()[0])
    core = tier._core
    first, _, last = tier._reader.find([make_id(number) for number in range(3)]).entries
    spots = tier._reader.find([make_id(0), make_id(2)]).spots
    assert isinstance(first, Entry)
    assert isinstance(last, Entry)
    strange = first._replace(checksum=-1)
    with pytest.raises(struct.error):
        core.loader.load([Place(strange, spots[0]), Place(last, spots[1])])
    assert core.memory.get([first.generation, last.generation]) == [None, None]
    assert fetch(tier, [make_id(0), make_id(2)]) == [make_record(n, size=BLOCK_BYTES).payload for n in (0, 2)]
