"""The service's plan equals the planner's with full knowledge.

The service holds blocks, looks for snapshots only where they could win, batch by batch, and stops early. Here every
block and every live snapshot is known from how the cache was filled.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvshelf_client.frames import checksum_of
from kvshelf_client.words import MissReason, Provenance
from service.leases.lease import Lease
from service.namespaces import Namespace, NamespaceSpec, make_namespace
from service.planner import fallback_plan, resume_plan
from service.planner.base import Ability, Cached, Mode, Request, Snapshot
from service.profiles import get_profile
from service.shelf import survey
from service.shelf.parts import Parts
from service.shelf.planning import Ask, make_plan
from storage.base import Entry, Record
from storage.clock import ManualClock
from storage.memory import MemoryTier
from tests.support.planning import requests
from tests.support.service import make_parts

BLOCK = 128
PROFILES = {
    "bounded replay and a decoder": "deepseek-v4.1-flash/fp4",
    "exact rebuild": "gpt-oss-20b/bf16",
    "full attention": "llama-3-8b/bf16",
    "all windowed": "mistral-7b-v0.1/bf16",
    "recurrent": "qwen3-next-80b/bf16",
}
KEYS = [number.to_bytes(32, "little") for number in range(1, 201)]
EXACT, REPLAYED = Provenance.EXACT, Provenance.REPLAYED

Shards = tuple[Provenance | None, ...]
"""One record: what is stored of each shard, None where nothing is."""


@dataclass(frozen=True)
class Case:
    """A request, and what is stored: of each block, and of the snapshot at its end."""

    namespace: Namespace
    request: Request
    blocks: Sequence[Shards]
    snapshots: Mapping[int, Shards]
    batch_boundaries: int

    @property
    def knowledge(self) -> Cached:
        """What is there, as the planner must be told."""
        request = self.request
        return Cached(
            self._reach(request.hbm_tokens, REPLAYED),
            self._reach(request.hbm_exact_tokens, EXACT),
            tuple(
                Snapshot((number + 1) * BLOCK, min(filter(None, shards)))
                for number, shards in self.snapshots.items()
                if None not in shards
            ),
        )

    def _reach(self, held_tokens: int, least: Provenance) -> int:
        end = held_tokens // BLOCK
        while end < len(self.blocks) and all(one is not None and one >= least for one in self.blocks[end]):
            end += 1
        return end * BLOCK


@cache
def namespace_of(profile_id: str, shards: int) -> Namespace:
    profile = get_profile(profile_id).miniature(1)
    return make_namespace("test", NamespaceSpec("tenant", "model", "1", profile, block_tokens=BLOCK, shards=shards))


@st.composite
def shards_of(draw: st.DrawFn, count: int) -> Shards:
    """A record of which all is there and alike, or any mixture."""
    kinds = st.sampled_from([EXACT, REPLAYED, EXACT, REPLAYED, None])
    return draw(kinds.map(lambda kind: (kind,) * count) | st.tuples(*[kinds] * count))


@st.composite
def cases(draw: st.DrawFn, profile_id: str) -> Case:
    namespace = namespace_of(profile_id, draw(st.sampled_from([1, 2])))
    batch_boundaries = draw(st.sampled_from([1, 3, 64]))
    most = draw(st.sampled_from([5, 40] if batch_boundaries < 64 else [5, len(KEYS)]))
    request = draw(requests(namespace.layout, most * BLOCK + BLOCK - 1))
    if draw(st.sampled_from([True, True, False])):
        request = replace(request, supports=request.supports | {Ability.SNAPSHOT})
    count = request.prompt_tokens // BLOCK
    blocks = draw(blocks_of(namespace, count))
    reach = max(len(blocks), count if not namespace.shard_block_bytes else 0)
    anywhere, near = st.integers(0, max(0, count - 1)), st.integers(max(0, reach - 4), max(0, reach - 1))
    snapshots = draw(st.dictionaries(near | near | anywhere, shards_of(namespace.shards), max_size=6)) if count else {}
    if draw(st.booleans()) and snapshots:
        just_met = load_bytes_per_saved_token(namespace, request, draw(st.sampled_from(sorted(snapshots))))
        request = replace(request, max_load_bytes_per_saved_token=just_met)
    return Case(namespace, request, blocks, snapshots, batch_boundaries)


@st.composite
def blocks_of(draw: st.DrawFn, namespace: Namespace, count: int) -> list[Shards]:
    """A prefix, exact up to some block, in which a few blocks may be otherwise."""
    reach = draw(st.integers(0, count))
    exact_reach = draw(st.just(reach) | st.integers(0, reach))
    most_odd = draw(st.sampled_from([0, 0, 3]))
    odd = draw(st.dictionaries(st.integers(0, count), shards_of(namespace.shards), max_size=most_odd))
    return [odd.get(at, (EXACT if at < exact_reach else REPLAYED,) * namespace.shards) for at in range(reach)]


def load_bytes_per_saved_token(namespace: Namespace, request: Request, number: int) -> float:
    """What it costs to resume at the snapshot after block ``number``."""
    held = request.hbm_tokens if request.allow_approximate else request.hbm_exact_tokens
    blocks = max(0, number + 1 - held // BLOCK)
    layout = namespace.layout
    return (blocks * layout.block_bytes + layout.snapshot_bytes) / ((number + 1) * BLOCK)


@cache
def bare_parts() -> Parts:
    """A service whose tiers are replaced for each example."""
    return make_parts(Path(tempfile.mkdtemp()), ManualClock())


def filled_parts(case: Case) -> Parts:
    blocks, snapshots = (
        MemoryTier(clock=ManualClock(), ttl_seconds=3600, budget_bytes=1 << 30, name=name) for name in ("ssd", "dram")
    )
    namespace = case.namespace
    for tier, size, stored in (
        (blocks, namespace.shard_block_bytes, dict(enumerate(case.blocks))),
        (snapshots, namespace.shard_snapshot_bytes, case.snapshots),
    ):
        payload = bytes(size)
        checksum = checksum_of(payload)
        records = [
            Record(namespace.record_id(KEYS[at], shard), payload, checksum, provenance)
            for at, shards in stored.items()
            for shard, provenance in enumerate(shards)
            if provenance is not None
        ]
        tier.write(records if size else [], durable=False)
    return replace(bare_parts(), blocks=blocks, snapshots=snapshots)


def check(case: Case) -> None:
    layout, request, knowledge = case.namespace.layout, case.request, case.knowledge
    parts = filled_parts(case)
    keys = KEYS[: request.prompt_tokens // BLOCK]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey, "SNAPSHOT_BATCH_BOUNDARIES", case.batch_boundaries)
        planned = make_plan(parts, Ask(case.namespace, request, keys, "request", 60.0))
    lease = planned.lease
    check_what_is_held(case, lease)
    assert lease.primary.plan == resume_plan(layout, request, knowledge)
    if lease.primary.plan.mode is Mode.SNAPSHOT:
        assert lease.fallback is not None
        assert lease.fallback.plan == fallback_plan(layout, request, knowledge)
    else:
        assert lease.fallback is None
    if layout.block_bytes:
        assert lease.hit_tokens == knowledge.global_tokens
        assert planned.exact_hit_tokens == knowledge.exact_global_tokens
        is_whole = knowledge.global_tokens == len(keys) * BLOCK
        assert planned.global_reason == (None if is_whole else (knowledge.global_tokens, MissReason.NEVER_STORED))
    if planned.snapshot_reason is not None:
        boundary, reason = planned.snapshot_reason
        assert reason is MissReason.NEVER_STORED
        assert None in case.snapshots.get(boundary // BLOCK - 1, (None,))
    assert parts.leases.release_all() == [lease]
    assert parts.leases.records == 0
    assert parts.blocks.usage().pinned_bytes == parts.snapshots.usage().pinned_bytes == 0


def check_what_is_held(case: Case, lease: Lease) -> None:
    """The lease holds all that its plans load, of every shard, and none of it is worse than the plan."""
    for answer in filter(None, (lease.primary, lease.fallback)):
        load = answer.plan.load
        held = [
            hold.entries[number - lease.first_block]
            for hold in lease.blocks
            for number in range(load.global_start // BLOCK, load.global_end // BLOCK)
        ]
        assert len(held) == case.namespace.shards * (load.global_end - load.global_start) // BLOCK
        if load.snapshot_boundary is not None:
            assert lease.snapshot is not None
            assert len(lease.snapshot.entries) == case.namespace.shards
            held += lease.snapshot.entries
        for entry in held:
            assert isinstance(entry, Entry)
            assert entry.provenance is EXACT or not answer.plan.exact


@pytest.mark.parametrize("name", PROFILES)
def test_the_services_plan_is_the_planners_with_full_knowledge(name: str) -> None:
    @settings(max_examples=200)
    @given(cases(PROFILES[name]))
    def property_of_the_model(case: Case) -> None:
        check(case)

    property_of_the_model()


@pytest.mark.parametrize("batch_boundaries", [1, 3, 64])
def test_under_a_limit_the_search_goes_on_to_the_snapshot_that_is_worth_its_bytes(batch_boundaries: int) -> None:
    """Beyond what the engine holds each block costs more: the deepest snapshot is too dear, another is not."""
    namespace = namespace_of(PROFILES["recurrent"], 1)
    supports = frozenset({Ability.SNAPSHOT})
    request = Request(1280, False, supports, 256, 256, max_load_bytes_per_saved_token=0.5)
    case = Case(namespace, request, [(EXACT,)] * 8, {2: (EXACT,), 6: (EXACT,)}, batch_boundaries)
    assert resume_plan(namespace.layout, request, case.knowledge).load.snapshot_boundary == 384
    check(case)
