"""Tokens that were run are told apart by the one thing that was missing first."""

from pathlib import Path
from typing import Any

import pytest

from kvshelf_client.frames import FrameHeader, FrameKind, checksum_of
from kvshelf_client.words import RecordClass
from service.leases.lease import RanPlan
from service.namespaces import Namespace
from service.shelf.finishing import finish
from service.shelf.parts import Parts
from service.shelf.storing import Upload, store
from storage.clock import ManualClock
from tests.support.service import make_parts, register
from tests.support.shelf import BLOCK, KEYS, REPLAYED, fetch, fill, plan

BLOCKS, SNAPSHOTS = RecordClass.BLOCK, RecordClass.SNAPSHOT
PROMPT = 100 * BLOCK + 50
END = 50 + BLOCK
"""No plan skips the last 128 tokens, so the boundary at 100 blocks is out of reach."""
NEW, UNUSED = ("none", "new_text"), ("none", "unused")


@pytest.fixture
def namespace(parts: Parts) -> Namespace:
    return register(parts)


def counted(parts: Parts) -> dict[tuple[str, str], int]:
    """Missed tokens by class and reason, those there are."""
    (family,) = parts.metrics.missed_tokens.collect()
    samples = [one for one in family.samples if one.name.endswith("_total") and one.value]
    return {(one.labels["class"], one.labels["reason"]): int(one.value) for one in samples}


def missed(
    parts: Parts, namespace: Namespace, ran: RanPlan = RanPlan.PLAN, tokens: int = PROMPT, **request: Any
) -> dict[tuple[str, str], int]:
    """What one more request missed."""
    before = counted(parts)
    made = plan(parts, namespace, tokens, **request)
    _, done = finish(parts, None, made.lease.lease_id, ran)
    grown = {cause: tokens - before.get(cause, 0) for cause, tokens in counted(parts).items()}
    assert sum(grown.values()) == tokens - done.run_start
    return {cause: tokens for cause, tokens in grown.items() if tokens}


def test_a_prompt_that_nobody_sent_before_is_new_text(parts: Parts, namespace: Namespace) -> None:
    assert missed(parts, namespace) == {NEW: PROMPT}


def test_text_behind_the_last_hit_is_new(parts: Parts, namespace: Namespace) -> None:
    fill(parts, namespace, BLOCKS, range(60))
    fill(parts, namespace, SNAPSHOTS, [59])
    assert missed(parts, namespace) == {NEW: PROMPT - 60 * BLOCK}


def test_nothing_is_missing_but_the_end(parts: Parts, namespace: Namespace) -> None:
    fill(parts, namespace, BLOCKS, range(100))
    fill(parts, namespace, SNAPSHOTS, [98])
    assert missed(parts, namespace) == {NEW: END}


def test_all_that_is_behind_a_gap_belongs_to_it(parts: Parts, namespace: Namespace) -> None:
    fill(parts, namespace, BLOCKS, range(1, 100))
    assert missed(parts, namespace) == {("block", "never_stored"): 99 * BLOCK, NEW: END}


def test_blocks_that_expired(parts: Parts, namespace: Namespace, clock: ManualClock) -> None:
    fill(parts, namespace, BLOCKS, range(100))
    clock.advance(parts.settings.store.ttl_seconds + 1)
    assert missed(parts, namespace) == {("block", "expired"): 99 * BLOCK, NEW: END}


def test_a_snapshot_that_expired_costs_the_replay(parts: Parts, namespace: Namespace, clock: ManualClock) -> None:
    fill(parts, namespace, BLOCKS, range(100))
    fill(parts, namespace, SNAPSHOTS, [98])
    clock.advance(parts.settings.pool.ttl_seconds + 1)
    assert missed(parts, namespace) == {("snapshot", "expired"): BLOCK, NEW: END}


def test_a_boundary_where_no_session_stopped(parts: Parts, namespace: Namespace) -> None:
    fill(parts, namespace, BLOCKS, range(100))
    assert missed(parts, namespace) == {("snapshot", "never_stored"): BLOCK, NEW: END}


def test_a_deeper_boundary_without_a_snapshot_does_not_hide_one_that_expired(
    parts: Parts, namespace: Namespace, clock: ManualClock
) -> None:
    fill(parts, namespace, BLOCKS, range(100))
    fill(parts, namespace, SNAPSHOTS, [97])
    clock.advance(parts.settings.pool.ttl_seconds + 1)
    assert missed(parts, namespace, allow_approximate=False).keys() == {("snapshot", "expired"), NEW}


def test_a_superseded_snapshot_was_stored(parts: Parts, namespace: Namespace) -> None:
    fill(parts, namespace, BLOCKS, range(60))
    fill(parts, namespace, SNAPSHOTS, [29])
    fill(parts, namespace, SNAPSHOTS, [49], supersedes=29)
    made = plan(parts, namespace, 50 * BLOCK + BLOCK)
    assert made.lease.primary.plan.load.snapshot_boundary == 50 * BLOCK
    fetch(parts, made.lease)
    finish(parts, None, made.lease.lease_id, RanPlan.PLAN)
    again = missed(parts, namespace, tokens=30 * BLOCK + BLOCK)
    assert again == {("snapshot", "superseded"): BLOCK, NEW: BLOCK}


def refused(parts: Parts, namespace: Namespace, kind: FrameKind, number: int) -> None:
    """Store a record for which there is no room."""
    size = namespace.shard_block_bytes if kind is FrameKind.BLOCK else namespace.shard_snapshot_bytes
    payload = bytes(size)
    end_tokens = (number + 1) * BLOCK
    header = FrameHeader(kind, KEYS[number], size, checksum_of(payload), REPLAYED, 0, end_tokens)
    (outcome,) = store(parts, Upload(namespace), [(header, payload)])
    assert (outcome.outcome, outcome.reason) == ("refused", "full")


def test_blocks_that_were_refused_are_told_from_new_text(tmp_path: Path, clock: ManualClock) -> None:
    parts = make_parts(tmp_path, clock, budget_bytes=1000)
    namespace = register(parts)
    refused(parts, namespace, FrameKind.BLOCK, 0)
    assert missed(parts, namespace) == {("block", "refused"): 99 * BLOCK, NEW: END}


def test_a_snapshot_that_was_refused(tmp_path: Path, clock: ManualClock) -> None:
    parts = make_parts(tmp_path, clock, budget_bytes=2000)
    namespace = register(parts)
    refused(parts, namespace, FrameKind.SNAPSHOT, 0)
    fill(parts, namespace, BLOCKS, [0])
    assert missed(parts, namespace, tokens=3 * BLOCK) == {("snapshot", "refused"): BLOCK, NEW: 2 * BLOCK}


def test_what_is_there_and_not_used(parts: Parts, namespace: Namespace) -> None:
    fill(parts, namespace, BLOCKS, range(100))
    fill(parts, namespace, SNAPSHOTS, [98])
    assert missed(parts, namespace, RanPlan.COLD) == {UNUSED: 99 * BLOCK, NEW: END}
    assert missed(parts, namespace, RanPlan.FALLBACK) == {UNUSED: BLOCK, NEW: END}


def test_a_snapshot_that_was_gone_by_the_fetch(parts: Parts, namespace: Namespace) -> None:
    fill(parts, namespace, BLOCKS, range(100))
    fill(parts, namespace, SNAPSHOTS, [98])
    made = plan(parts, namespace, PROMPT)
    assert made.lease.snapshot is not None
    parts.snapshots.erase([namespace.record_id(KEYS[98], 0)])
    fetch(parts, made.lease)
    finish(parts, None, made.lease.lease_id, RanPlan.PLAN)
    lost = {cause: tokens for cause, tokens in counted(parts).items() if cause != NEW}
    assert sum(lost.values()) == BLOCK
    assert {kind for kind, _ in lost} == {"snapshot"}


def test_a_request_is_counted_once(parts: Parts, namespace: Namespace) -> None:
    for _ in range(2):
        made = plan(parts, namespace, PROMPT, request_id="one")
        finish(parts, None, made.lease.lease_id, RanPlan.PLAN)
    assert counted(parts) == {NEW: PROMPT}
