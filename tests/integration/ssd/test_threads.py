"""Readers, writers and upkeep at the same time, under a budget that makes every segment change hands."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

from kvshelf_client.words import MissReason
from storage.base import Entry, Loaded, WriteOutcome
from storage.ssd import SsdTier
from tests.support.records import make_id, make_record
from tests.support.ssd import SsdShelf

MIB = 1 << 20
SIZE = 30_000
RECORDS = 900
NUMBERS = 400


def test_no_reader_ever_sees_what_it_did_not_ask_for(shelf: SsdShelf) -> None:
    tier = shelf.open(8 * MIB)
    payloads = [bytes(make_record(number, size=SIZE).payload) for number in range(NUMBERS)]
    is_over = threading.Event()

    def read(seed: int) -> int:
        rng, count = random.Random(seed), 0
        while not is_over.is_set():
            numbers = rng.sample(range(NUMBERS), 3)
            hold = tier.hold([make_id(number) for number in numbers])
            hold.keep(0, rng.randint(1, 3))
            for number, entry, loaded in zip(numbers, hold.entries, hold.read(0, 3), strict=False):
                if isinstance(entry, Entry):
                    assert isinstance(loaded, Loaded), f"a firm hold lost {number}: {loaded}"
                    assert loaded.payload == payloads[number]
                    count += 1
                else:
                    assert entry.reason is not MissReason.CORRUPT
            hold.release()
        return count

    def write(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(RECORDS // 10):
            numbers = rng.sample(range(NUMBERS), 10)
            results = tier.write([make_record(number, size=SIZE) for number in numbers], durable=rng.random() < 0.5)
            assert {result.outcome for result in results} <= {WriteOutcome.STORED, WriteOutcome.DUPLICATE}
            tier.touch([make_id(number) for number in numbers[:3]])
            if rng.random() < 0.3:
                tier.delete([make_id(numbers[0])])
            if rng.random() < 0.3:
                tier.maintain()

    with ThreadPoolExecutor(5) as pool:
        readers = [pool.submit(read, seed) for seed in range(2)]
        writers = [pool.submit(write, seed) for seed in (10, 11)]
        try:
            for writer in writers:
                writer.result()
        finally:
            is_over.set()
        assert sum(reader.result() for reader in readers) > 100
    assert "corrupt" not in shelf.observer.faults
    assert shelf.observer.evicted_records["budget"] > 200
    tier.check_integrity()
    assert tier.usage().pinned_bytes == 0


def test_writers_at_the_same_time_share_commits(shelf: SsdShelf) -> None:
    tier = shelf.open(64 * MIB)
    barrier = threading.Barrier(8)

    def work(thread: int) -> list[str]:
        barrier.wait()
        numbers = range(thread * 100, thread * 100 + 20)
        return [
            result.outcome
            for number in numbers
            for result in tier.write([make_record(number, size=1000, owner=str(thread))], durable=True)
        ]

    with ThreadPoolExecutor(8) as pool:
        outcomes = [one for some in pool.map(work, range(8)) for one in some]
    assert outcomes == ["stored"] * 160
    assert tier.usage().owners == {str(thread): 20_000 for thread in range(8)}


def test_closing_waits_for_those_inside(shelf: SsdShelf) -> None:
    tier = shelf.open(32 * MIB)
    started = threading.Barrier(5)

    def work(tier: SsdTier, seed: int) -> int:
        rng, count = random.Random(seed), 0
        started.wait()
        while tier.is_up():
            record = make_record(rng.randrange(1000), size=5000)
            try:
                tier.write([record], durable=False)
                hold = tier.hold([record.id])
                hold.read(0, 1)
            except ValueError:
                break
            hold.release()
            count += 1
        return count

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work, tier, seed) for seed in range(4)]
        started.wait()
        while tier.usage().records < 50:
            pass
        tier.close()
        assert sum(worker.result() for worker in workers) >= 46
    reopened = shelf.open(32 * MIB)
    reopened.check_integrity()
    assert reopened.usage().records >= 50
