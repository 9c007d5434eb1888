"""Plans that are refused hold nothing, and requests that end renew what they used."""

from pathlib import Path
from typing import Any

import pytest

from kvshelf_client.words import MissReason, RecordClass
from service.leases.book import LeaseLimitError
from service.leases.lease import RanPlan
from service.planner import InvalidRequestError
from service.settings import load_settings
from service.shelf.finishing import finish
from service.shelf.parts import Parts
from service.shelf.upkeep import upkeep_step
from storage.clock import ManualClock
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
    finish(parts, held.lease_id, RanPlan.PLAN)
    parts.close()


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
    namespace = register(parts)
    fill(parts, namespace, BLOCKS, range(7))
    for wait_hours in (0, 0.9):
        clock.advance(wait_hours * HOUR_SECONDS)
        lease = plan(parts, namespace, 1100, request_id="request").lease
        finish(parts, lease.lease_id, RanPlan.PLAN)
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
    finish(parts, last.lease_id, RanPlan.COLD)
    upkeep_step(parts)
    clock.advance(2 * HOUR_SECONDS)
    assert plan(parts, namespace, 1100).lease.hit_tokens == 0
