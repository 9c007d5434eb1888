"""What happens to a plan whose snapshot goes, and to the snapshots that a used one supersedes."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kvshelf_client.frames import FrameHeader, FrameKind, checksum_of
from kvshelf_client.words import Provenance, RecordClass
from service.access import ANYBODY
from service.leases.lease import Lease, RanPlan
from service.namespaces import Namespace, NamespaceSpec
from service.planner import Ran, judge_store
from service.planner.base import Ability, Mode
from service.profiles import get_profile
from service.shelf.fetching import BATCH_RECORDS
from service.shelf.finishing import finish
from service.shelf.parts import Parts
from service.shelf.storing import UNKNOWN_PLAN, Upload, ran_plan, store
from storage.base import Entry, Miss, RecordId
from storage.clock import ManualClock
from storage.memory import MemoryTier
from tests.support.service import V41, make_parts
from tests.support.shelf import BLOCK, EXACT, KEYS, REPLAYED, fetch, fill, open_stream, plan

BLOCKS, SNAPSHOTS = RecordClass.BLOCK, RecordClass.SNAPSHOT
ALL = frozenset(Ability)
GPT_OSS = "gpt-oss-20b/bf16"


def register(parts: Parts, profile: str = V41, shards: int = 1) -> Namespace:
    spec = NamespaceSpec(
        "tenant", "model", "1", get_profile(profile).miniature(1), block_tokens=BLOCK, shards=shards, salt=profile
    )
    return parts.namespaces.register(ANYBODY, profile.partition("/")[0], spec)[0]


def lose(parts: Parts, namespace: Namespace, number: int, shard: int = 0) -> None:
    """Damage a snapshot: an in-process pool keeps what it holds, but not unseen."""
    hold = parts.snapshots.hold([namespace.record_id(KEYS[number], shard)])
    kept = memoryview(hold.read(0, 1)[0].payload).obj  # type: ignore[union-attr]
    assert isinstance(kept, bytearray)
    kept[0] ^= 1
    hold.release()


def claim(parts: Parts, namespace: Namespace, plan_id: str, end_tokens: int) -> object:
    """What becomes of a block that is claimed to be exact after a plan."""
    return judge_store(namespace.layout, ran_plan(parts, None, namespace, plan_id), BLOCKS, end_tokens, EXACT)


def kinds(parts: Parts, lease: Lease, shard: int | None = None) -> list[FrameKind]:
    return [frame.header.kind for frame in fetch(parts, lease, shard)]


def fallback_id(lease: Lease) -> str:
    assert lease.fallback is not None
    return lease.fallback.plan_id


@pytest.fixture
def exact_first(parts: Parts) -> tuple[Namespace, Lease]:
    """An exact plan with an approximate fallback: a snapshot, or a bounded replay."""
    namespace = register(parts)
    fill(parts, namespace, BLOCKS, range(7))
    fill(parts, namespace, SNAPSHOTS, [6])
    lease = plan(parts, namespace, 1100).lease
    assert (lease.primary.plan.mode, lease.primary.plan.exact) == (Mode.SNAPSHOT, True)
    assert lease.fallback is not None
    assert (lease.fallback.plan.mode, lease.fallback.plan.exact) == (Mode.BOUNDED_REPLAY, False)
    return namespace, lease


@pytest.fixture
def approximate_first(parts: Parts) -> tuple[Namespace, Lease]:
    """An approximate plan with an exact fallback: a replayed snapshot, or an exact rebuild further down."""
    namespace = register(parts, GPT_OSS)
    fill(parts, namespace, BLOCKS, range(20))
    fill(parts, namespace, SNAPSHOTS, [19], provenance=REPLAYED)
    lease = plan(parts, namespace, 2600, supports=ALL, allow_approximate=True).lease
    assert (lease.primary.plan.mode, lease.primary.plan.exact) == (Mode.SNAPSHOT, False)
    assert lease.fallback is not None
    assert (lease.fallback.plan.mode, lease.fallback.plan.exact) == (Mode.EXACT_REBUILD, True)
    return namespace, lease


def test_a_fetch_that_finds_the_snapshot_falls_back_on_nothing(
    parts: Parts, exact_first: tuple[Namespace, Lease]
) -> None:
    namespace, lease = exact_first
    assert kinds(parts, lease) == [FrameKind.SNAPSHOT] + [FrameKind.BLOCK] * 7
    assert claim(parts, namespace, lease.primary.plan_id, 1024) == EXACT
    assert claim(parts, namespace, fallback_id(lease), 1024) == REPLAYED


def test_after_the_fallback_of_an_exact_plan_nothing_is_exact(
    parts: Parts, exact_first: tuple[Namespace, Lease]
) -> None:
    namespace, lease = exact_first
    lose(parts, namespace, 6)
    assert kinds(parts, lease) == [FrameKind.FALLBACK] + [FrameKind.BLOCK] * 7
    for plan_id in (lease.primary.plan_id, fallback_id(lease)):
        assert claim(parts, namespace, plan_id, 1024) == REPLAYED
    _, counted = finish(parts, None, lease.lease_id, RanPlan.PLAN)
    assert counted.mode is Mode.BOUNDED_REPLAY


def test_the_fallback_of_an_approximate_plan_does_not_raise_its_claim(
    parts: Parts, approximate_first: tuple[Namespace, Lease]
) -> None:
    """The first fetch brought the replayed snapshot; whether that was run, only the client knows."""
    namespace, lease = approximate_first
    assert kinds(parts, lease)[0] is FrameKind.SNAPSHOT
    lose(parts, namespace, 19)
    assert kinds(parts, lease)[0] is FrameKind.FALLBACK
    assert claim(parts, namespace, lease.primary.plan_id, 2688) == REPLAYED
    assert claim(parts, namespace, fallback_id(lease), 2688) == EXACT


def test_the_fallback_can_be_asked_for(parts: Parts, approximate_first: tuple[Namespace, Lease]) -> None:
    namespace, lease = approximate_first
    assert fetch(parts, lease, fall_back=True)[0].payload == fallback_id(lease).encode()
    assert kinds(parts, lease)[0] is FrameKind.FALLBACK, "and stays in force"
    assert claim(parts, namespace, lease.primary.plan_id, 2688) == REPLAYED


def test_a_plan_without_a_fallback_stays_in_force(parts: Parts) -> None:
    namespace = register(parts)
    fill(parts, namespace, BLOCKS, range(7))
    lease = plan(parts, namespace, 1100).lease
    assert lease.fallback is None
    assert [frame.header.kind for frame in fetch(parts, lease, fall_back=True)] == [FrameKind.BLOCK] * 7
    assert not lease.fell_back


def test_one_shard_that_is_gone_brings_every_shard_to_the_fallback(parts: Parts) -> None:
    namespace = register(parts, shards=2)
    fill(parts, namespace, BLOCKS, range(7))
    fill(parts, namespace, SNAPSHOTS, [6])
    lease = plan(parts, namespace, 1100).lease
    lose(parts, namespace, 6, shard=1)
    assert kinds(parts, lease, 0) == [FrameKind.SNAPSHOT] + [FrameKind.BLOCK] * 7, "nobody has looked at shard 1 yet"
    assert kinds(parts, lease, 1) == [FrameKind.FALLBACK] + [FrameKind.BLOCK] * 7
    assert kinds(parts, lease, 0) == [FrameKind.FALLBACK] + [FrameKind.BLOCK] * 7
    assert claim(parts, namespace, lease.primary.plan_id, 1024) == REPLAYED


def test_a_stream_under_way_goes_on_as_it_began(parts: Parts) -> None:
    """Another shard falls back in the middle of it; the fallback starts elsewhere, and has its own streams."""
    namespace = register(parts, shards=2)
    count = 2 * BATCH_RECORDS
    fill(parts, namespace, BLOCKS, range(count + 1))
    fill(parts, namespace, SNAPSHOTS, [count - 1])
    lease = plan(parts, namespace, (count + 3) * BLOCK).lease
    assert lease.primary.plan.load.global_end == count * BLOCK
    assert lease.fallback is not None
    assert lease.fallback.plan.load.global_end == (count + 1) * BLOCK
    lose(parts, namespace, count - 1, shard=1)
    stream = open_stream(parts, lease, 0)
    sent = sum(len(buffer) for buffer in next(stream.batches))
    assert kinds(parts, lease, 1)[0] is FrameKind.FALLBACK
    sent += sum(len(buffer) for batch in stream.batches for buffer in batch)
    assert sent == stream.length_bytes
    assert not stream.fell_back
    assert kinds(parts, lease, 0) == [FrameKind.FALLBACK] + [FrameKind.BLOCK] * (count + 1)


@pytest.mark.parametrize("profile", [V41, GPT_OSS, "llama-3-8b/bf16"])
def test_a_plan_that_is_not_known_supports_no_claim(parts: Parts, profile: str) -> None:
    namespace, other = register(parts, profile), register(parts, "qwen3-8b/bf16")
    foreign = plan(parts, other, 1000).lease.primary.plan_id
    for plan_id in ("never given", foreign):
        assert ran_plan(parts, None, namespace, plan_id) is UNKNOWN_PLAN
        for kind in RecordClass:
            assert judge_store(namespace.layout, UNKNOWN_PLAN, kind, BLOCK, EXACT) == REPLAYED
    assert ran_plan(parts, None, namespace, None) is None
    mine = plan(parts, namespace, 1000).lease.primary.plan_id
    assert ran_plan(parts, None, namespace, mine) == Ran(0, True, 0, 0)


def is_there(parts: Parts, namespace: Namespace, number: int, shard: int = 0) -> bool:
    (found,) = parts.snapshots.lookup([namespace.record_id(KEYS[number], shard)])
    return isinstance(found, Entry)


@pytest.mark.parametrize(
    ("old", "new", "goes"),
    [(EXACT, EXACT, True), (REPLAYED, EXACT, True), (REPLAYED, REPLAYED, True), (EXACT, REPLAYED, False)],
)
def test_a_used_snapshot_retires_the_one_it_supersedes_unless_that_is_better(
    parts: Parts, old: Provenance, new: Provenance, goes: bool
) -> None:
    namespace = register(parts)
    fill(parts, namespace, BLOCKS, range(7))
    fill(parts, namespace, SNAPSHOTS, [3], provenance=old)
    fill(parts, namespace, SNAPSHOTS, [6], provenance=new, supersedes=3)
    lease = plan(parts, namespace, 1100).lease
    assert is_there(parts, namespace, 3), "a plan alone is no use"
    fetch(parts, lease)
    assert is_there(parts, namespace, 3) is not goes
    assert is_there(parts, namespace, 6)


def test_each_shard_retires_its_own(parts: Parts) -> None:
    namespace = register(parts, shards=2)
    fill(parts, namespace, BLOCKS, range(7))
    fill(parts, namespace, SNAPSHOTS, [3])
    fill(parts, namespace, SNAPSHOTS, [6], supersedes=3)
    lease = plan(parts, namespace, 1100).lease
    fetch(parts, lease, 1)
    assert [is_there(parts, namespace, 3, shard) for shard in range(2)] == [True, False]
    fetch(parts, lease, 0)
    assert not is_there(parts, namespace, 3, 0)


def test_a_snapshot_with_one_replayed_shard_retires_no_exact_one(parts: Parts) -> None:
    namespace = register(parts, shards=2)
    fill(parts, namespace, BLOCKS, range(7))
    fill(parts, namespace, SNAPSHOTS, [3])
    fill(parts, namespace, SNAPSHOTS, [6], shards=[0], supersedes=3)
    fill(parts, namespace, SNAPSHOTS, [6], shards=[1], provenance=REPLAYED, supersedes=3)
    lease = plan(parts, namespace, 1100).lease
    assert not lease.primary.plan.exact
    fetch(parts, lease, 0)
    assert is_there(parts, namespace, 3, shard=0)
    fetch(parts, lease)
    assert all(is_there(parts, namespace, 3, shard) for shard in range(2))


class BusyPool(MemoryTier):
    """A pool in which, right after a look at the ``watched`` record, somebody stores it again and is given time to."""

    watched: RecordId | None = None
    store: Callable[[], object]
    other: threading.Thread | None = None

    def lookup(self, ids: Sequence[RecordId]) -> list[Entry | Miss]:
        """See :meth:`Tier.lookup`."""
        found = super().lookup(ids)
        if list(ids) == [self.watched]:
            self.watched = None
            self.other = threading.Thread(target=self.store)
            self.other.start()
            self.other.join(0.3)
        return found


def test_what_becomes_exact_while_it_is_retired_stays(tmp_path: Path, clock: ManualClock) -> None:
    pool = BusyPool(clock=clock, ttl_seconds=300, budget_bytes=1 << 20, name="dram")
    parts = make_parts(tmp_path, clock, snapshots=pool)
    namespace = register(parts)
    fill(parts, namespace, BLOCKS, range(7))
    fill(parts, namespace, SNAPSHOTS, [3], provenance=REPLAYED)
    fill(parts, namespace, SNAPSHOTS, [6], provenance=REPLAYED, supersedes=3)
    lease = plan(parts, namespace, 1100).lease
    payload = bytes(namespace.shard_snapshot_bytes)
    header = FrameHeader(FrameKind.SNAPSHOT, KEYS[3], len(payload), checksum_of(payload), EXACT, 0, 512)
    upload = Upload(namespace, Ran(0, True, 512, 512))
    pool.store = lambda: store(parts, upload, [(header, payload)])
    pool.watched = namespace.record_id(KEYS[3])
    fetch(parts, lease)
    assert pool.other is not None
    pool.other.join()
    (kept,) = parts.snapshots.lookup([namespace.record_id(KEYS[3])])
    assert isinstance(kept, Entry)
    assert kept.provenance is EXACT
    parts.close()
