"""The whole store as a state machine: every verb in any order, against a model that is a dictionary.

Nothing is evicted here, and all clocks are the test's, so the model knows all: what is there, what a plan is, what a
fetch brings, what is left after a restart.
"""

import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvshelf_client.circuit import BreakerState
from kvshelf_client.frames import FrameHeader, FrameKind, checksum_of
from kvshelf_client.words import Provenance, RecordClass
from service.access import ANYBODY
from service.leases.book import UnknownLeaseError
from service.leases.lease import Lease, RanPlan
from service.namespaces import Namespace, NamespaceSpec
from service.namespaces.errors import NamespaceConflictError
from service.planner import Ran, fallback_plan, request_for, resume_plan
from service.planner.base import Cached, Snapshot
from service.profiles import get_profile
from service.shelf import records
from service.shelf.finishing import finish, finish_all
from service.shelf.records import TierDownError
from service.shelf.storing import Upload, store
from service.shelf.upkeep import upkeep_step
from storage.base import Entry
from tests.simulation.pool import RemotePool
from tests.support.scratch import SCRATCH
from tests.support.service import V41, make_parts
from tests.support.shelf import BLOCK, EXACT, KEYS, REPLAYED, fetch, plan
from tests.support.tiers import SsdFactory

BLOCKS = 12
TTL_SECONDS, POOL_TTL_SECONDS = 3600.0, 300.0
_COLD = Ran(write_floor=0, exact=True, held_tokens=0, held_exact_tokens=0)

Name = tuple[str, RecordClass, int]
"""Of a record: its namespace, its class, and the number of its block, or of the block it ends with."""

numbers = st.lists(st.integers(0, BLOCKS - 1), min_size=1, max_size=6, unique=True)
kinds = st.sampled_from(list(RecordClass))
names = st.sampled_from(["one", "two"])
picks = st.integers(0, 99)


class Kept(NamedTuple):
    """A record of the model, and when it was last used."""

    provenance: Provenance
    used_at: float


@dataclass
class Leased:
    """A lease of the model: what its blocks were when it was made."""

    lease: Lease
    held: dict[int, Provenance] = field(default_factory=dict)
    ends_at: float = 0.0


def payload_of(name: Name, provenance: Provenance, size: int) -> bytes:
    """The bytes of a record: other ones in each namespace, class, place and provenance."""
    seed = b"%b %d %d %d" % (name[0].encode(), name[1], name[2], provenance)
    return (checksum_of(seed).to_bytes(8, "little") * (size // 8 + 1))[:size]


class StoreMachine(RuleBasedStateMachine):
    """A service over an SSD tier and a pool that may go away, and the model of both."""

    def __init__(self) -> None:
        super().__init__()
        self.tried: Counter[str] = Counter()
        """How often each rule was followed."""
        self._scratch = tempfile.TemporaryDirectory(dir=SCRATCH)
        self._factory = SsdFactory(Path(self._scratch.name), _no_redis)
        self._clock = self._factory.clock
        self._blocks = self._factory.make(ttl_seconds=TTL_SECONDS)
        self._pool = RemotePool(clock=self._clock, ttl_seconds=POOL_TTL_SECONDS, budget_bytes=1 << 24)
        self._model: dict[Name, Kept] = {}
        self._leases: list[Leased] = []
        self._open()

    def _open(self) -> None:
        self._parts = make_parts(self._factory.directory, self._clock, blocks=self._blocks, snapshots=self._pool)
        self._places: dict[str, Namespace] = {name: self._register(name) for name in ("one", "two")}

    def _register(self, name: str, shards: int = 1) -> Namespace:
        profile = get_profile(V41).miniature(1)
        spec = NamespaceSpec("tenant", "model", "1", profile, block_tokens=BLOCK, salt=name, shards=shards)
        return self._parts.namespaces.register(ANYBODY, name, spec)[0]

    # What the model knows.

    def _live(self, name: Name) -> Kept | None:
        kept = self._model.get(name)
        ttl_seconds = TTL_SECONDS if name[1] is RecordClass.BLOCK else POOL_TTL_SECONDS
        return kept if kept is not None and self._clock.now() - kept.used_at < ttl_seconds else None

    def _renew(self, name: Name) -> None:
        kept = self._live(name)
        if kept is not None:
            self._model[name] = kept._replace(used_at=self._clock.now())

    def _is_sure(self, kind: RecordClass) -> bool:
        """Whether that tier answers for certain: its breaker may still be open when the pool is back."""
        return kind is RecordClass.BLOCK or (
            not self._pool.is_away and self._parts.breaker_state() == BreakerState.CLOSED.value
        )

    def _prefix(self, place: str, blocks: int, least: Provenance) -> int:
        """How many of the first blocks of the conversation are there, none of them of lower provenance."""
        for number in range(blocks):
            kept = self._live((place, RecordClass.BLOCK, number))
            if kept is None or kept.provenance < least:
                return number
        return blocks

    def _end(self, leased: Leased) -> None:
        """A lease is over: what its plan used lives anew."""
        self._leases.remove(leased)
        for number in range(leased.lease.current.plan.matched_tokens // BLOCK):
            self._renew((leased.lease.namespace.name, RecordClass.BLOCK, number))

    # The verbs.

    @rule(place=names)
    def register_again(self, place: str) -> None:
        """The same is found, another is refused."""
        self.tried["register again"] += 1
        assert self._register(place).fingerprint == self._places[place].fingerprint
        try:
            self._register(place, shards=2)
        except NamespaceConflictError:
            return
        raise AssertionError("another namespace took the name")

    @rule(place=names, kind=kinds, which=numbers, provenance=st.sampled_from([EXACT, REPLAYED]), durable=st.booleans())
    def store(self, place: str, kind: RecordClass, which: list[int], provenance: Provenance, *, durable: bool) -> None:
        """The first is kept, a better one replaces it, the rest are duplicates."""
        self.tried["store"] += 1
        namespace, is_sure = self._places[place], self._is_sure(kind)
        frames = []
        for number in which:
            payload = payload_of((place, kind, number), provenance, _bytes_of(namespace, kind))
            header = FrameHeader(FrameKind(kind), KEYS[number], len(payload), checksum_of(payload), provenance)
            frames.append((header._replace(end_tokens=(number + 1) * BLOCK), payload))
        outcomes = store(self._parts, Upload(namespace, _COLD, durable), frames)
        for number, outcome in zip(which, outcomes, strict=True):
            name = (place, kind, number)
            kept = self._live(name)
            expected = "stored" if kept is None else "replaced" if provenance > kept.provenance else "duplicate"
            if outcome.outcome == "lost" and not is_sure:
                continue
            assert outcome.outcome == expected, f"{name}: {outcome}, where {kept} is kept"
            self._model[name] = Kept(max(provenance, kept.provenance if kept else provenance), self._clock.now())

    @rule(place=names, tokens=st.integers(1, (BLOCKS + 2) * BLOCK), approximate=st.booleans())
    def plan(self, place: str, tokens: int, *, approximate: bool) -> None:
        """The plan is the one that the planner makes of what the model has."""
        self.tried["plan"] += 1
        namespace, is_sure = self._places[place], self._is_sure(RecordClass.SNAPSHOT)
        layout, blocks = namespace.layout, min(tokens // BLOCK, BLOCKS)
        cached = Cached(self._prefix(place, blocks, REPLAYED) * BLOCK, self._prefix(place, blocks, EXACT) * BLOCK)
        snapshots = [
            Snapshot((number + 1) * BLOCK, kept.provenance)
            for number in range(blocks)
            if (kept := self._live((place, RecordClass.SNAPSHOT, number)))
        ]
        request = request_for(layout, tokens, allow_approximate=approximate)
        expected = resume_plan(layout, request, replace(cached, snapshots=tuple(snapshots)))
        planned = plan(self._parts, namespace, tokens, allow_approximate=approximate)
        lease = planned.lease
        without = fallback_plan(layout, request, cached)
        assert lease.primary.plan in ((expected,) if is_sure else (expected, without))
        assert lease.fallback is None or lease.fallback.plan == without
        assert lease.hit_tokens == cached.global_tokens
        held = {
            number: kept.provenance
            for number in range(blocks)
            if (kept := self._live((place, RecordClass.BLOCK, number)))
        }
        self._leases.append(Leased(lease, held, self._clock.now() + lease.ttl_seconds))

    @precondition(lambda self: self._leases)
    @rule(pick=picks)
    def fetch(self, pick: int) -> None:
        """What was held comes, byte for byte, whatever became of it since; without its snapshot the fallback does."""
        self.tried["fetch"] += 1
        leased = self._leases[pick % len(self._leases)]
        lease, place = leased.lease, leased.lease.namespace.name
        boundary, had_fallen_back = lease.primary.plan.load.snapshot_boundary, lease.fell_back
        is_sure, frames = self._is_sure(RecordClass.SNAPSHOT), fetch(self._parts, lease)
        leased.ends_at = self._clock.now() + lease.ttl_seconds
        if boundary is not None and not had_fallen_back:
            assert lease.snapshot is not None
            name: Name = (place, RecordClass.SNAPSHOT, boundary // BLOCK - 1)
            kept, entry = self._live(name), lease.snapshot.entries[0]
            is_there = kept is not None and isinstance(entry, Entry) and kept.provenance >= entry.provenance
            assert lease.fell_back == (not is_there) or not is_sure
            assert lease.fell_back or is_there
            if not lease.fell_back:
                assert kept is not None
                header, payload = frames.pop(0)
                assert payload == payload_of(name, kept.provenance, len(payload))
                self._renew(name)
        if lease.fell_back:
            assert frames.pop(0).header.kind is FrameKind.FALLBACK
        load = lease.current.plan.load
        expected = range(load.global_start // BLOCK, load.global_end // BLOCK)
        assert [frame.header.key for frame in frames] == [KEYS[number] for number in expected]
        for number, (header, payload) in zip(expected, frames, strict=True):
            assert (header.miss, header.provenance) == (None, leased.held[number])
            assert payload == payload_of((place, RecordClass.BLOCK, number), leased.held[number], len(payload))

    @precondition(lambda self: self._leases)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        """A lease ends once."""
        self.tried["release"] += 1
        leased = self._leases[pick % len(self._leases)]
        finish(self._parts, None, leased.lease.lease_id, RanPlan.PLAN)
        self._end(leased)
        try:
            finish(self._parts, None, leased.lease.lease_id, RanPlan.PLAN)
        except UnknownLeaseError:
            return
        raise AssertionError("a lease was released twice")

    @rule(place=names, kind=kinds, which=numbers)
    def touch(self, place: str, kind: RecordClass, which: list[int]) -> None:
        """The live ones live anew."""
        self.tried["touch"] += 1
        is_sure, live = self._is_sure(kind), [n for n in which if self._live((place, kind, n))]
        try:
            count = records.touch(self._parts, self._places[place], kind, [KEYS[number] for number in which])
        except TierDownError:
            assert not is_sure
            return
        assert count == len(live)
        for number in live:
            self._renew((place, kind, number))

    @rule(place=names, kind=kinds, which=numbers)
    def delete(self, place: str, kind: RecordClass, which: list[int]) -> None:
        """The live ones go."""
        self.tried["delete"] += 1
        is_sure, live = self._is_sure(kind), [n for n in which if self._live((place, kind, n))]
        try:
            count = records.delete(self._parts, self._places[place], kind, [KEYS[number] for number in which])
        except TierDownError:
            assert not is_sure
            return
        assert count == len(live)
        for number in live:
            del self._model[place, kind, number]

    # What happens to it.

    @rule(seconds=st.sampled_from([0.31, 7.77, 61.13, 301.57, 1_801.91, 3_602.23]))
    def time_passes(self, seconds: float) -> None:
        """Leases and records expire."""
        self.tried["time passes"] += 1
        self._clock.advance(seconds)
        upkeep_step(self._parts)
        for leased in [one for one in self._leases if self._clock.now() >= one.ends_at]:
            self._end(leased)

    @rule()
    def restart(self) -> None:
        """A stop ends every lease; all blocks are there again."""
        self.tried["restart"] += 1
        finish_all(self._parts)
        for leased in list(self._leases):
            self._end(leased)
        self._blocks = self._factory.reopen(self._blocks)
        self._open()

    @rule(is_away=st.booleans())
    def the_pool_goes_or_comes(self, *, is_away: bool) -> None:
        """Nobody can reach it meanwhile."""
        self.tried["the pool goes or comes"] += 1
        self._pool.is_away = is_away

    @precondition(lambda self: not self._pool.is_away)
    @rule()
    def the_pool_is_emptied(self) -> None:
        """As by a restart of its server."""
        self.tried["the pool is emptied"] += 1
        for name in [one for one in self._model if one[1] is RecordClass.SNAPSHOT]:
            self._pool.delete([self._places[name[0]].record_id(KEYS[name[2]], 0)], cause="budget")
            del self._model[name]

    @invariant()
    def it_adds_up(self) -> None:
        """The accounts of leases and tiers agree with what there is."""
        self._parts.leases.check_integrity()
        self._pool.check_integrity()
        assert len(self._parts.leases) == len(self._leases)

    def teardown(self) -> None:
        """Every block of the model is there, and nothing else."""
        try:
            self._check_blocks()
        finally:
            self._factory.close()
            self._scratch.cleanup()

    def _check_blocks(self) -> None:
        finish_all(self._parts)
        for leased in list(self._leases):
            self._end(leased)
        self._blocks.check_integrity()
        for place, namespace in self._places.items():
            for number in range(BLOCKS):
                (found,) = self._blocks.lookup([namespace.record_id(KEYS[number], 0)])
                kept = self._live((place, RecordClass.BLOCK, number))
                assert (found.provenance if isinstance(found, Entry) else None) == (kept.provenance if kept else None)


def _bytes_of(namespace: Namespace, kind: RecordClass) -> int:
    return namespace.shard_block_bytes if kind is RecordClass.BLOCK else namespace.shard_snapshot_bytes


def _no_redis() -> str:
    raise AssertionError("no Redis here")
