"""Plans that are refused hold nothing, and requests that end renew what they used."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvshelf_client.words import MissReason, RecordClass
from service.leases.book import LeaseBook, LeaseLimitError
from service.leases.lease import Lease, RanPlan
from service.planner import InvalidRequestError
from service.settings import load_settings
from service.shelf.finishing import finish
from service.shelf.parts import Parts
from service.shelf.upkeep import upkeep_step
from storage.base import Hold, RecordId
from storage.clock import ManualClock
from storage.memory import MemoryTier
from tests.support.service import make_parts, register
from tests.support.shelf import fill, plan

BLOCKS, SNAPSHOTS = RecordClass.BLOCK, RecordClass.SNAPSHOT
HOUR_SECONDS = 3600.0


@pytest.mark.parametrize(
    ("request_fields", "field"),
    [
        ({"hbm_tokens": 1101}, "hbm_tokens"),
        ({"hbm_tokens": 0, "hbm_exact_tokens": 1000}, "hbm_exact_tokens"),
        ({"hbm_tokens": -128}, "hbm_tokens"),
        ({"max_load_bytes_per_saved_token": float("nan")}, "max_load_bytes_per_saved_token"),
    ],
)
def test_a_request_that_contradicts_itself_holds_nothing(
    parts: Parts, request_fields: dict[str, Any], field: str
) -> None:
    namespace = register(parts)
    fill(parts, namespace, BLOCKS, range(8))
    with pytest.raises(InvalidRequestError) as caught:
        plan(parts, namespace, 1100, **request_fields)
    assert caught.value.field == field
    assert parts.blocks.usage().pinned_bytes == 0
    assert len(parts.leases) == 0


@pytest.mark.parametrize(("limits", "fits"), [({"max_leases": 1}, 0), ({"max_records": 8}, 7), ({"max_records": 7}, 6)])
def test_a_plan_beyond_the_limits_holds_nothing(tmp_path: Path, limits: dict[str, int], fits: int) -> None:
    parts = make_parts(tmp_path, ManualClock(), settings=load_settings(flags={"lease": limits}, environment={}))
    namespace = register(parts)
    fill(parts, namespace, BLOCKS, range(7))
    fill(parts, namespace, SNAPSHOTS, [6])
    held = plan(parts, namespace, fits * 128 + 128).lease
    assert held.records <= parts.leases.records
    before = parts.blocks.usage().pinned_bytes, parts.snapshots.usage().pinned_bytes
    with pytest.raises(LeaseLimitError):
        plan(parts, namespace, 1100)
    assert (parts.blocks.usage().pinned_bytes, parts.snapshots.usage().pinned_bytes) == before
    finish(parts, None, held.lease_id, RanPlan.PLAN)
    parts.close()


def test_a_plan_that_fails_halfway_holds_nothing(parts: Parts) -> None:
    namespace = register(parts)
    fill(parts, namespace, BLOCKS, range(7))
    parts.snapshots.close()
    with pytest.raises(ValueError, match="closed"):
        plan(parts, namespace, 1100)
    assert parts.blocks.usage().pinned_bytes == 0
    assert len(parts.leases) == 0


def test_a_plan_holds_what_it_loads_and_no_more(parts: Parts) -> None:
    namespace = register(parts)
    fill(parts, namespace, BLOCKS, range(8))
    fill(parts, namespace, SNAPSHOTS, [3, 6])
    lease = plan(parts, namespace, 1000, hbm_tokens=256, hbm_exact_tokens=256).lease
    assert lease.primary.plan.load.snapshot_boundary is None, "the replay of the block after it runs as few tokens"
    assert (lease.first_block, [len(hold.entries) for hold in lease.blocks]) == (2, [4])
    assert parts.blocks.usage().pinned_bytes == 4 * 128
    assert parts.snapshots.usage().pinned_bytes == 0


def test_a_request_that_ends_renews_its_blocks_even_when_it_was_counted_before(
    parts: Parts, clock: ManualClock
) -> None:
    """An engine that plans a request again has used the blocks again, although its tokens count once."""
    namespace = register(parts, shards=2)
    fill(parts, namespace, BLOCKS, range(7))
    for wait_hours in (0, 0.9):
        clock.advance(wait_hours * HOUR_SECONDS)
        lease = plan(parts, namespace, 1100, request_id="request").lease
        finish(parts, None, lease.lease_id, RanPlan.PLAN)
    assert parts.metrics.registry.get_sample_value("kvshelf_requests_total") == 1
    clock.advance(71.5 * HOUR_SECONDS)
    assert plan(parts, namespace, 1100).lease.hit_tokens == 896, "72.4 hours after the first use"
    clock.advance(HOUR_SECONDS)
    planned = plan(parts, namespace, 1100)
    assert planned.lease.hit_tokens == 0
    assert planned.global_reason == (0, MissReason.EXPIRED)


def test_a_plan_that_was_replaced_has_used_nothing(parts: Parts, clock: ManualClock) -> None:
    namespace = register(parts)
    fill(parts, namespace, BLOCKS, range(7))
    clock.advance(71 * HOUR_SECONDS)
    plan(parts, namespace, 1100, request_id="request")
    last = plan(parts, namespace, 1100, request_id="request").lease
    finish(parts, None, last.lease_id, RanPlan.COLD)
    upkeep_step(parts)
    clock.advance(2 * HOUR_SECONDS)
    assert plan(parts, namespace, 1100).lease.hit_tokens == 0


class AskedTier(MemoryTier):
    """Remembers how many records each hold was asked for."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock, ttl_seconds=3600, budget_bytes=64 << 20, name="ssd")
        self.asked: list[int] = []

    def hold(self, ids: Sequence[RecordId]) -> Hold:
        """See :meth:`Tier.hold`."""
        self.asked.append(len(ids))
        return super().hold(ids)


@pytest.fixture
def asked(tmp_path: Path, clock: ManualClock) -> Iterator[tuple[Parts, AskedTier]]:
    """A service that may keep 30 records under lease."""
    blocks = AskedTier(clock)
    limits = load_settings(flags={"lease": {"max_records": 30}}, environment={})
    parts = make_parts(tmp_path, clock, settings=limits, blocks=blocks)
    yield parts, blocks
    parts.close()
    assert blocks.usage().pinned_bytes == 0


def test_a_shard_is_asked_only_for_what_the_ones_before_it_have(asked: tuple[Parts, AskedTier]) -> None:
    parts, blocks = asked
    namespace = register(parts, shards=4)
    for shard, count in enumerate((5, 3, 4, 3)):
        fill(parts, namespace, BLOCKS, range(count), shards=[shard])
    planned = plan(parts, namespace, 100 * 128)
    assert blocks.asked == [100, 5, 3, 3]
    assert planned.lease.hit_tokens == 3 * 128
    assert planned.global_reason == (3 * 128, MissReason.NEVER_STORED)


@pytest.mark.parametrize(("count", "fits"), [(7, True), (8, False)])
def test_what_cannot_fit_is_refused_before_the_other_shards_are_held(
    asked: tuple[Parts, AskedTier], count: int, fits: bool
) -> None:
    parts, blocks = asked
    namespace = register(parts, shards=4)
    fill(parts, namespace, BLOCKS, range(count))
    if fits:
        assert plan(parts, namespace, 100 * 128).lease.records == 4 * count
        assert blocks.asked == [100, 7, 7, 7]
        return
    with pytest.raises(LeaseLimitError, match="needs 32"):
        plan(parts, namespace, 100 * 128)
    assert blocks.asked == [100]
    assert (len(parts.leases), blocks.usage().pinned_bytes) == (0, 0)


def test_keys_of_what_the_engine_holds_count(asked: tuple[Parts, AskedTier]) -> None:
    parts, _ = asked
    namespace = register(parts, profile="llama-3-8b/bf16")
    lease = plan(parts, namespace, 3900, hbm_tokens=30 * 128, hbm_exact_tokens=30 * 128, hbm_state=True).lease
    assert (lease.records, len(lease.keys)) == (0, 30)
    with pytest.raises(LeaseLimitError):
        plan(parts, namespace, 200, hbm_tokens=128, hbm_exact_tokens=128, hbm_state=True)
    finish(parts, None, lease.lease_id, RanPlan.PLAN)
    plan(parts, namespace, 200, hbm_tokens=128, hbm_exact_tokens=128, hbm_state=True)


class HastyBook(LeaseBook):
    """A book in which another plan of the request comes at once."""

    def add(self, lease: Lease) -> Lease | None:
        """See :meth:`LeaseBook.add`."""
        earlier = super().add(lease)
        self.release(None, lease.lease_id)
        return earlier


def test_a_lease_whose_place_is_taken_at_once_is_answered_all_the_same(parts: Parts, clock: ManualClock) -> None:
    namespace = register(parts)
    fill(parts, namespace, BLOCKS, range(7))
    fill(parts, namespace, SNAPSHOTS, [6])
    hasty = replace(parts, leases=HastyBook(clock, max_leases=10, max_records=100))
    assert plan(hasty, namespace, 1100).lease.primary.plan.matched_tokens == 896
    for tier in ("ssd", "dram"):
        sample = parts.metrics.registry.get_sample_value("kvshelf_age_at_hit_seconds_count", {"tier": tier})
        assert sample == 1


@pytest.mark.parametrize("memory_seconds", [1.0, 70.0])
def test_a_plan_is_not_forgotten_while_its_lease_lives(
    tmp_path: Path, clock: ManualClock, memory_seconds: float
) -> None:
    flags = {"lease": {"plan_memory_seconds": memory_seconds, "max_ttl_seconds": 60.0}}
    parts = make_parts(tmp_path, clock, settings=load_settings(flags=flags, environment={}))
    namespace = register(parts)
    fill(parts, namespace, BLOCKS, range(7))
    fill(parts, namespace, SNAPSHOTS, [6])
    lease = plan(parts, namespace, 1100).lease
    for _ in range(5):
        clock.advance(59.9)
        with parts.leases.use(None, lease.lease_id):
            pass
        upkeep_step(parts)
    clock.advance(max(60.0, memory_seconds) - 0.1)
    for answer in lease.answers:
        assert parts.plans.get((None, answer.plan_id)) is not None
    assert len(lease.answers) == 2
    clock.advance(0.1)
    assert parts.plans.get((None, lease.primary.plan_id)) is None
    parts.close()
