"""The verbs of a service from many threads at once: nothing is lost, nothing is counted twice, nothing stays pinned."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from kvshelf_client.frames import FrameHeader, FrameKind, checksum_of
from kvshelf_client.words import Provenance, RecordClass
from service.leases.book import LeaseLimitError, UnknownLeaseError
from service.leases.lease import Lease, RanPlan
from service.namespaces import Namespace
from service.settings import load_settings
from service.shelf import records
from service.shelf.finishing import finish, finish_all
from service.shelf.parts import Parts
from service.shelf.storing import Upload, ran_plan, store
from service.shelf.upkeep import upkeep_step
from storage.clock import ManualClock
from storage.memory import MemoryTier
from tests.simulation.pool import RemotePool
from tests.support.service import make_parts, register
from tests.support.shelf import BLOCK, KEYS, fetch, payload_of, plan

THREADS, CALLS = 6, 250
SHARDS = 2
BLOCKS = 20


class Crowd:
    """Clients of one namespace that pay no heed to each other; they share requests, and each other's leases."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        settings = load_settings(flags={"lease": {"max_leases": 24, "max_records": 900}}, environment={})
        # There is room for some of what is stored.
        blocks = MemoryTier(clock=self.clock, ttl_seconds=3600, budget_bytes=36_000, name="ssd")
        snapshots = RemotePool(clock=self.clock, ttl_seconds=300, budget_bytes=30_000)
        self.parts: Parts = make_parts(directory, self.clock, settings=settings, blocks=blocks, snapshots=snapshots)
        self.namespace: Namespace = register(self.parts, shards=SHARDS)
        self.leases: list[Lease] = []
        self.planned: set[int] = set()
        self.seen: Counter[str] = Counter()
        self.failures: list[BaseException] = []

    def work(self, seed: int) -> None:
        """One thread's calls."""
        random = Random(seed)
        calls = [self.plan, self.plan, self.store, self.store, self.fetch, self.fetch, self.fetch, self.end, self.else_]
        try:
            for _ in range(CALLS):
                try:
                    self.seen[random.choice(calls)(random)] += 1
                except (UnknownLeaseError, LeaseLimitError) as error:
                    self.seen[type(error).__name__] += 1
        except BaseException as error:  # noqa: BLE001 - the main thread reports whatever it was.
            self.failures.append(error)

    @staticmethod
    def prompt_tokens(request: int) -> int:
        """The prompt of a request, the same whenever it is planned."""
        return 200 + 37 * (request % 60)

    def plan(self, random: Random) -> str:
        request = random.randrange(200)
        ttl_seconds, tokens = random.choice([1.0, 30.0]), self.prompt_tokens(request)
        planned = plan(self.parts, self.namespace, tokens, request_id=str(request), lease_ttl_seconds=ttl_seconds)
        self.planned.add(request)
        self.leases.append(lease := planned.lease)
        return f"planned {lease.primary.plan.mode}"

    def fetch(self, random: Random) -> str:
        lease = self.some_lease(random)
        shard = random.choice([None, 0, 1])
        frames = fetch(self.parts, lease, shard, fall_back=random.random() < 0.2)
        answer = lease.primary
        if frames and frames[0].header.kind is FrameKind.FALLBACK:
            assert lease.fallback is not None
            assert bytes(frames.pop(0).payload) == lease.fallback.plan_id.encode()
            answer = lease.fallback
        load = answer.plan.load
        expected = Counter(frame.header.kind for frame in frames)
        count = SHARDS if shard is None else 1
        assert expected[FrameKind.BLOCK] == count * (load.global_end - load.global_start) // BLOCK
        assert expected[FrameKind.SNAPSHOT] == count * (load.snapshot_boundary is not None)
        for header, payload in frames:
            number = header.end_tokens // BLOCK - 1
            assert header.key == KEYS[number]
            if not header.miss:
                assert payload == self.payload(RecordClass(header.kind), number, header.shard)
        return "fetched a fallback" if answer is lease.fallback else "fetched"

    def store(self, random: Random) -> str:
        start = random.randrange(BLOCKS)
        numbers = range(start, min(BLOCKS, start + 6))
        frames = []
        for kind, places in ((RecordClass.BLOCK, numbers), (RecordClass.SNAPSHOT, numbers[-1:])):
            for number in places:
                for shard in range(SHARDS):
                    payload = self.payload(kind, number, shard)
                    header = FrameHeader(
                        FrameKind(kind), KEYS[number], len(payload), checksum_of(payload), Provenance.EXACT, shard
                    )
                    frames.append((header._replace(end_tokens=(number + 1) * BLOCK), payload))
        plan_id = self.some_lease(random).primary.plan_id
        upload = Upload(self.namespace, ran_plan(self.parts, None, self.namespace, plan_id))
        assert len(store(self.parts, upload, frames)) == len(frames)
        return "stored"

    def end(self, random: Random) -> str:
        finish(self.parts, None, self.some_lease(random).lease_id, random.choice(list(RanPlan)))
        return "released"

    def else_(self, random: Random) -> str:
        what = random.choice(["pass", "upkeep", "delete", "renew"])
        if what == "pass":
            self.clock.advance(random.choice([0.1, 0.5, 20.0]))
        elif what == "upkeep":
            upkeep_step(self.parts)
        elif what == "delete":
            kind = random.choice(list(RecordClass))
            records.delete(self.parts, self.namespace, kind, [KEYS[random.randrange(BLOCKS)]])
        else:
            with self.parts.leases.use(None, self.some_lease(random).lease_id):
                pass
        return what

    def some_lease(self, random: Random) -> Lease:
        if not self.leases:
            raise UnknownLeaseError
        return random.choice(self.leases[-10:])

    def payload(self, kind: RecordClass, number: int, shard: int) -> bytearray:
        is_block = kind is RecordClass.BLOCK
        size = self.namespace.shard_block_bytes if is_block else self.namespace.shard_snapshot_bytes
        return payload_of(kind, number, shard, size)


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    """Threads take turns far more often than usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


def test_many_threads_leave_nothing_behind(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path)
    threads = [threading.Thread(target=crowd.work, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert crowd.failures == []
    parts = crowd.parts
    parts.leases.check_integrity()
    finish_all(parts)
    assert (len(parts.leases), parts.leases.records) == (0, 0)
    for tier in (parts.blocks, parts.snapshots):
        assert tier.usage().pinned_bytes == 0
        tier.check_integrity()
    counted = next(iter(parts.metrics.prompt_tokens.collect())).samples
    assert sum(sample.value for sample in counted) == sum(map(crowd.prompt_tokens, crowd.planned))
    assert {"fetched", "planned snapshot", "planned bounded_replay", "stored", "released", "UnknownLeaseError"} <= {
        *crowd.seen
    }, crowd.seen
    parts.close()
