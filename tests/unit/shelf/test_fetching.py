"""A fetch: how it is cut into batches, and what becomes of it when its lease ends on the way."""

import pytest

from kvshelf_client.frames import HEADER_BYTES, FrameAssembler, FrameKind, checksum_of
from kvshelf_client.words import MissReason, RecordClass
from service.access import ANYBODY
from service.leases.book import UnknownLeaseError
from service.leases.lease import RanPlan
from service.namespaces import Namespace, NamespaceSpec
from service.profiles import get_profile
from service.shelf.fetching import BATCH_BYTES, BATCH_RECORDS, Fetch, NoSuchShardError, open_fetch
from service.shelf.finishing import finish
from service.shelf.parts import Parts
from service.shelf.upkeep import upkeep_step
from storage.base import Payload
from storage.clock import ManualClock
from tests.support.service import V41
from tests.support.shelf import BLOCK, KEYS, fetch, fill, open_stream, payload_of, plan

BLOCKS, SNAPSHOTS = RecordClass.BLOCK, RecordClass.SNAPSHOT
LLAMA = "llama-3-8b/bf16"


def register(parts: Parts, profile: str = LLAMA, *, bytes_per_token: int = 1, shards: int = 1) -> Namespace:
    small = get_profile(profile).miniature(bytes_per_token)
    spec = NamespaceSpec("tenant", "model", "1", small, block_tokens=BLOCK, shards=shards)
    return parts.namespaces.register(ANYBODY, "test", spec)[0]


def records_in(batch: list[Payload], record_bytes: int) -> int:
    total = sum(map(len, batch))
    assert total % (HEADER_BYTES + record_bytes) == 0
    return total // (HEADER_BYTES + record_bytes)


@pytest.mark.parametrize(
    ("bytes_per_token", "blocks", "batches"),
    [
        (1, 0, []),
        (1, 1, [1]),
        (1, BATCH_RECORDS - 1, [BATCH_RECORDS - 1]),
        (1, BATCH_RECORDS, [BATCH_RECORDS]),
        (1, BATCH_RECORDS + 1, [BATCH_RECORDS, 1]),
        (1, 2 * BATCH_RECORDS + 44, [BATCH_RECORDS, BATCH_RECORDS, 44]),
        (BATCH_BYTES // BLOCK // 2, 5, [2, 2, 1]),
        (BATCH_BYTES // BLOCK // 2 + 1, 3, [1, 1, 1]),
        (BATCH_BYTES // BLOCK, 3, [1, 1, 1]),
        (BATCH_BYTES // BLOCK + 1, 3, [1, 1, 1]),
        (3 * BATCH_BYTES // BLOCK, 2, [1, 1]),
    ],
)
def test_batches_are_bounded_in_records_and_in_bytes_but_hold_a_record(
    parts: Parts, bytes_per_token: int, blocks: int, batches: list[int]
) -> None:
    namespace = register(parts, bytes_per_token=bytes_per_token)
    fill(parts, namespace, BLOCKS, range(blocks))
    lease = plan(parts, namespace, (blocks + 1) * BLOCK).lease
    stream = open_stream(parts, lease)
    assert [records_in(batch, namespace.shard_block_bytes) for batch in stream.batches] == batches
    assert stream.length_bytes == blocks * (HEADER_BYTES + namespace.shard_block_bytes)


def test_only_what_the_engine_lacks_is_sent(parts: Parts) -> None:
    namespace = register(parts)
    fill(parts, namespace, BLOCKS, range(5))
    lease = plan(parts, namespace, 1000, hbm_tokens=300, hbm_exact_tokens=300).lease
    frames = fetch(parts, lease)
    assert [frame.header.end_tokens for frame in frames] == [384, 512, 640]
    assert [frame.header.key for frame in frames] == KEYS[2:5]
    assert [frame.payload for frame in frames] == [payload_of(BLOCKS, number, 0, BLOCK) for number in (2, 3, 4)]


def test_a_plan_that_needs_no_blocks_sends_its_snapshot_alone(parts: Parts) -> None:
    namespace = register(parts, V41)
    fill(parts, namespace, SNAPSHOTS, [5])
    lease = plan(parts, namespace, 1000, hbm_tokens=800, hbm_exact_tokens=800).lease
    (frame,) = fetch(parts, lease)
    assert (frame.header.kind, frame.header.end_tokens) == (FrameKind.SNAPSHOT, 768)
    assert frame.payload == payload_of(SNAPSHOTS, 5, 0, namespace.shard_snapshot_bytes)


def test_all_shards_come_in_order_or_one_alone(parts: Parts) -> None:
    namespace = register(parts, V41, shards=2)
    fill(parts, namespace, BLOCKS, range(2))
    fill(parts, namespace, SNAPSHOTS, [1])
    lease = plan(parts, namespace, 400).lease
    kinds = [(frame.header.kind, frame.header.shard, frame.header.end_tokens) for frame in fetch(parts, lease)]
    snapshots = [(FrameKind.SNAPSHOT, shard, 256) for shard in range(2)]
    blocks = [[(FrameKind.BLOCK, shard, end) for end in (128, 256)] for shard in range(2)]
    assert kinds == [*snapshots, *blocks[0], *blocks[1]]
    frames = fetch(parts, lease, 1)
    assert [(one.header.kind, one.header.shard, one.header.end_tokens) for one in frames] == [snapshots[1], *blocks[1]]
    for shard in (-1, 2):
        with pytest.raises(NoSuchShardError):
            open_stream(parts, lease, shard)


def test_a_damaged_block_is_a_miss_of_the_announced_length(parts: Parts) -> None:
    namespace = register(parts)
    fill(parts, namespace, BLOCKS, range(3))
    lease = plan(parts, namespace, 400).lease
    hold = parts.blocks.hold([namespace.record_id(KEYS[1])])
    kept = memoryview(hold.read(0, 1)[0].payload).obj  # type: ignore[union-attr]
    assert isinstance(kept, bytearray)
    kept[0] ^= 1
    hold.release()
    for reason in (MissReason.CORRUPT, MissReason.CORRUPT):
        first, second, third = fetch(parts, lease)
        assert (first.header.miss, second.header.miss, third.header.miss) == (None, reason, None)
        assert second.header.key == KEYS[1]
        assert second.payload == bytes(BLOCK)


@pytest.fixture
def long(parts: Parts) -> Namespace:
    """A namespace with blocks for three batches of two."""
    namespace = register(parts, bytes_per_token=BATCH_BYTES // BLOCK // 2)
    fill(parts, namespace, BLOCKS, range(6))
    return namespace


def misses_of(stream: Fetch, sent: list[Payload]) -> list[MissReason | None]:
    """Read a stream to its end, which is where it was announced, and say which of its frames are misses."""
    data = b"".join(bytes(buffer) for batch in (sent, *stream.batches) for buffer in batch)
    assert len(data) == stream.length_bytes
    frames = list(FrameAssembler(1 << 30).feed(data))
    assert all(frame.payload == bytes(frame.header.length_bytes) for frame in frames if frame.header.miss)
    assert [frame.header.key for frame in frames] == KEYS[: len(frames)]
    assert all(checksum_of(frame.payload) == frame.header.checksum for frame in frames)
    return [frame.header.miss for frame in frames]


GONE = [None] * 2 + [MissReason.EXPIRED] * 4


def test_a_lease_that_expires_on_the_way_leaves_misses(parts: Parts, long: Namespace, clock: ManualClock) -> None:
    stream = open_stream(parts, plan(parts, long, 1000, lease_ttl_seconds=10).lease)
    sent = next(stream.batches)
    clock.advance(10)
    assert misses_of(stream, sent) == GONE
    counted = {"class": "block", "result": "miss", "reason": "expired"}
    assert parts.metrics.registry.get_sample_value("kvshelf_fetched_records_total", counted) == 4
    upkeep_step(parts)
    assert len(parts.leases) == 0
    assert parts.blocks.usage().pinned_bytes == 0


def test_every_batch_renews_the_lease(parts: Parts, long: Namespace, clock: ManualClock) -> None:
    stream = open_stream(parts, plan(parts, long, 1000, lease_ttl_seconds=10).lease)
    for _ in range(3):
        clock.advance(9.9)
        upkeep_step(parts)
        assert next(stream.batches)
    assert next(stream.batches, None) is None


def test_a_lease_that_is_released_on_the_way_leaves_misses(parts: Parts, long: Namespace) -> None:
    lease = plan(parts, long, 1000).lease
    stream = open_stream(parts, lease)
    sent = next(stream.batches)
    assert records_in(sent, long.shard_block_bytes) == 2
    finish(parts, None, lease.lease_id, RanPlan.COLD)
    assert parts.blocks.usage().pinned_bytes == 0
    assert misses_of(stream, sent) == GONE
    assert parts.blocks.usage().pinned_bytes == 0


def test_a_lease_that_ends_before_the_first_block_leaves_nothing_but_misses(parts: Parts, long: Namespace) -> None:
    lease = plan(parts, long, 1000).lease
    stream = open_stream(parts, lease)
    finish(parts, None, lease.lease_id, RanPlan.COLD)
    assert misses_of(stream, []) == [MissReason.EXPIRED] * 6


def test_a_second_plan_of_the_request_leaves_misses_to_the_fetch_of_the_first(parts: Parts, long: Namespace) -> None:
    stream = open_stream(parts, plan(parts, long, 1000, request_id="request").lease)
    sent = next(stream.batches)
    second = plan(parts, long, 1000, request_id="request").lease
    assert misses_of(stream, sent) == GONE
    assert len(fetch(parts, second)) == 6


def test_a_fetch_that_nobody_reads_on_holds_no_more_than_its_lease(parts: Parts, long: Namespace) -> None:
    lease = plan(parts, long, 1000).lease
    stream = open_stream(parts, lease)
    next(stream.batches)
    del stream
    assert lease.users == 0
    finish(parts, None, lease.lease_id, RanPlan.PLAN)
    assert parts.blocks.usage().pinned_bytes == 0


def test_records_that_go_while_they_are_leased_are_sent_all_the_same(parts: Parts, long: Namespace) -> None:
    lease = plan(parts, long, 1000).lease
    assert parts.blocks.delete(long.record_ids(KEYS[:6])) == 6
    assert [frame.header.miss for frame in fetch(parts, lease)] == [None] * 6
    assert plan(parts, long, 1000).lease.hit_tokens == 0


def test_an_unknown_lease_has_nothing_to_fetch(parts: Parts) -> None:
    with pytest.raises(UnknownLeaseError):
        open_fetch(parts, None, "never given", None, lambda lease: b"")
