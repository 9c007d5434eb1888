"""A whole service, its clients, and everything that may go wrong between them, on one seed and a clock of its own."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random

from kvshelf_client.frames import checksum_of
from kvshelf_client.words import Provenance, RecordClass
from service.access import ANYBODY
from service.leases.lease import Lease, RequestKey
from service.leases.recent import Recent
from service.namespaces import NamespaceSpec
from service.profiles import Profile
from service.settings import load_settings
from service.shelf import records
from service.shelf.finishing import finish_all
from service.shelf.parts import Parts
from service.shelf.records import TierDownError
from service.shelf.upkeep import upkeep_step
from storage.base import Entry, Record, RecordId, Tier
from tests.simulation.ledger import Ledger, Place
from tests.simulation.payloads import payload_of
from tests.simulation.pool import RemotePool
from tests.simulation.session import Session
from tests.support.faulty import Fault, FaultyTier
from tests.support.service import counting_ids, make_parts
from tests.support.tiers import TierFactory

HOUR_SECONDS = 3600.0
TTL_SECONDS = 72 * HOUR_SECONDS
POOL_TTL_SECONDS = 300.0
POOL_BUDGET_BYTES = 24 << 10
"""Some twenty snapshots."""
SETTINGS = load_settings(
    flags={"lease": {"max_leases": 6, "max_records": 90, "max_plans": 40, "plan_memory_seconds": HOUR_SECONDS}},
    environment={},
)


def injected(tier: str, fault: Fault) -> str:
    """What a fault that was injected in a tier is counted under."""
    return f"injected in {tier}: {fault.replace('_', ' ')}"


@dataclass
class Life:
    """A service from its start to its stop: the prompts of the requests it planned, by namespace and request id."""

    parts: Parts
    faulty: tuple[FaultyTier, ...]
    prompts: dict[tuple[str, str], int] = field(default_factory=dict)


class World:
    """One history. Equal seeds make equal histories.

    Args:
        profile: the model's.
        block_tokens: the namespaces' block size.
        seed: what happens.
        factory: makes the tier of the blocks; its clock is everybody's.
        blocks_budget_bytes: small enough for eviction, unless ``is_ample``.
        is_ample: whether nothing is ever evicted: then whatever was acknowledged as durable must be there.
        faults: how often calls to the tiers fail.
    """

    def __init__(
        self,
        profile: Profile,
        block_tokens: int,
        seed: int,
        factory: TierFactory,
        blocks_budget_bytes: int,
        *,
        is_ample: bool = False,
        faults: Mapping[Fault, float] | None = None,
    ) -> None:
        self.is_ample, self._faults = is_ample, faults or {}
        self.random = Random(seed)
        self.seen: Counter[str] = Counter()
        self.ledger = Ledger()
        self.factory = factory
        self.blocks: Tier = factory.make(ttl_seconds=TTL_SECONDS, budget_bytes=blocks_budget_bytes)
        self.pool = RemotePool(
            clock=factory.clock, ttl_seconds=POOL_TTL_SECONDS, budget_bytes=POOL_BUDGET_BYTES, observer=factory.observer
        )
        self._directory: Path = factory.directory
        self._ids = counting_ids()
        self.steps = 0
        self._runs = 0
        self._plans: list[tuple[str, str]] = []
        self.life = self._start()
        self.places = [self._register(profile, block_tokens, name, shards) for name, shards in (("one", 1), ("two", 2))]
        self.sessions = [Session(self, place, f"engine {number}") for place in self.places for number in range(2)]

    @property
    def parts(self) -> Parts:
        """The service that runs now."""
        return self.life.parts

    def next_run(self) -> int:
        """A number for what one run makes."""
        self._runs += 1
        return self._runs

    def planned(self, place: Place, request_id: str, prompt_tokens: int, lease: Lease) -> None:
        """Take note of a plan that was answered."""
        self.life.prompts[place.namespace.name, request_id] = prompt_tokens
        self._plans.append((place.namespace.name, lease.primary.plan_id))

    def plan_of_another(self, place: Place) -> str | None:
        """The id of the latest plan in another namespace."""
        return next((plan_id for name, plan_id in reversed(self._plans) if name != place.namespace.name), None)

    def lives_until(self) -> float:
        """Until when a block lives that is stored now, whatever the wall clock does."""
        return self.factory.clock.now() + TTL_SECONDS - HOUR_SECONDS

    def crash(self) -> None:
        """The service died in the middle of a call: what it acknowledged as durable is there all the same."""
        self.seen["crashed in a write"] += 1
        self.parts.leases.release_all()
        self.blocks = self.factory.recover(self.blocks)
        self.blocks.check_integrity()
        self._begin()

    def step(self) -> None:
        """Something happens; then everything must still add up."""
        self.steps += 1
        if self.random.random() < 0.75:
            next(self.random.choice(self.sessions).life)
        else:
            what, _ = self.random.choices(_EVENTS, [weight for _, weight in _EVENTS])[0]
            self.seen[what.__name__.strip("_").replace("_", " ")] += 1
            what(self)
        for tier in self.life.faulty:
            self.ledger.gone(tier.dropped)
        self._check()

    def finish(self) -> None:
        """Stop the service: every lease ends, every request is counted, and nothing stays pinned."""
        self.pool.is_away = False
        self._stop()
        self._count_faults()
        self._check_durable()
        self.seen["acknowledged as durable"] += self.ledger.acknowledged
        self.ledger.check_tier(self.blocks, RecordClass.BLOCK)
        self.ledger.check_tier(self.pool, RecordClass.SNAPSHOT)

    def _register(self, profile: Profile, block_tokens: int, name: str, shards: int) -> Place:
        spec = NamespaceSpec("tenant", "model", "1", profile, block_tokens=block_tokens, salt=name, shards=shards)
        return Place(self.parts.namespaces.register(ANYBODY, name, spec)[0])

    def _check_durable(self) -> None:
        self.seen["found again as durable"] += self.ledger.check_durable(self.blocks, self.factory.clock.now())

    def _faulty(self, tier: Tier, faults: Mapping[Fault, float]) -> FaultyTier:
        cut = partial(self.factory.before_crash, tier, self.random) if tier.is_durable else None
        return FaultyTier(tier, self.random, faults, wait=self.factory.clock.advance, before_crash=cut)

    def _start(self) -> Life:
        blocks = self._faulty(self.blocks, self._faults)
        pool = self._faulty(self.pool, {**self._faults, Fault.CRASH: 0.0})
        parts = make_parts(
            self._directory,
            self.factory.clock,
            settings=SETTINGS,
            blocks=blocks,
            snapshots=pool,
            make_id=self._ids,
        )
        # Requests come again hours later here; let none be counted twice for that.
        finished = Recent[RequestKey, None](self.factory.clock, ttl_seconds=1e9, limit=1 << 20)
        return Life(replace(parts, finished=finished), (blocks, pool))

    def _begin(self) -> None:
        """Another life after the one that ended."""
        self._count_faults()
        self.life = self._start()
        self._check_durable()

    def _count_faults(self) -> None:
        """What failed in the life that ended."""
        for tier in self.life.faulty:
            for fault, times in tier.seen.items():
                self.seen[injected(tier.name, fault)] += times

    def _stop(self) -> None:
        finish_all(self.parts)
        self._check()
        for tier in (self.blocks, self.pool):
            tier.check_integrity()
        assert self._count("kvshelf_requests_total") == len(self.life.prompts)
        assert self._counted_tokens() == sum(self.life.prompts.values())

    def _check(self) -> None:
        leases = self.parts.leases
        leases.check_integrity()
        self.pool.check_integrity()
        if not len(leases):
            assert leases.records == 0
            assert self.blocks.usage().pinned_bytes == self.pool.usage().pinned_bytes == 0, "something stays pinned"

    def _counted_tokens(self) -> float:
        """Prompt tokens that were counted, from all sources."""
        return sum(
            sample.value
            for sample in next(iter(self.parts.metrics.prompt_tokens.collect())).samples
            if sample.name == "kvshelf_prompt_tokens_total"
        )

    def _count(self, name: str) -> float:
        return self.parts.metrics.registry.get_sample_value(name) or 0.0

    # What may happen.

    def _a_moment_passes(self) -> None:
        self.factory.clock.advance(self.random.choice([0.1, 1.0, 4.0]))

    def _a_lease_time_passes(self) -> None:
        self.factory.clock.advance(self.random.choice([20.0, 61.0]))

    def _a_pool_time_passes(self) -> None:
        self.factory.clock.advance(POOL_TTL_SECONDS + 1)

    def _hours_pass(self) -> None:
        self.factory.clock.advance(self.random.choice([HOUR_SECONDS + 1, TTL_SECONDS / 2, TTL_SECONDS + 1]))

    def _the_wall_clock_steps(self) -> None:
        self.factory.clock.step(self.random.choice([-90.0, 90.0]))

    def _upkeep_is_done(self) -> None:
        upkeep_step(self.parts)

    def _the_pool_goes(self) -> None:
        self.pool.is_away = True

    def _the_pool_comes_back(self) -> None:
        self.pool.is_away = False

    def _a_snapshot_is_evicted(self) -> None:
        names = self.ledger.names(RecordClass.SNAPSHOT)
        if names:
            self.pool.delete([self.random.choice(names[-12:])], cause="budget")

    def _promised_snapshot(self) -> RecordId | None:
        """One shard of a snapshot that some plan loads."""
        holds = [session.leased.snapshot for session in self.sessions if session.leased and session.leased.snapshot]
        return self.random.choice(self.random.choice(holds).entries).id if holds else None

    def _a_promised_snapshot_is_lost(self) -> None:
        promised = self._promised_snapshot()
        if promised is not None:
            self.pool.delete([promised], cause="budget")

    def _a_promised_snapshot_makes_way_for_a_replayed_one(self) -> None:
        """It is evicted, and another service on the same pool stores what it has after a replay."""
        promised = self._promised_snapshot()
        if promised is not None and not self.pool.is_away:
            kind, replayed = RecordClass.SNAPSHOT, Provenance.REPLAYED
            last = self.ledger.last(kind, promised)
            payload = payload_of(kind, last.key, promised.shard, self.next_run(), len(last.payload))
            self.pool.delete([promised], cause="budget")
            self.pool.write([Record(promised, payload, checksum_of(payload), replayed)], durable=False)
            self.ledger.note(kind, promised, last.key, replayed, payload)

    def _records_are_deleted(self) -> None:
        """All shards of one record, by the service's own verb."""
        place = self.random.choice(self.places)
        prompt = self.random.choice(place.prompts[-4:])
        keys = place.keys_of(prompt)
        if keys:
            kind, key = self.random.choice(list(RecordClass)), self.random.choice(keys)
            self.ledger.gone(place.namespace.record_id(key, shard) for shard in range(place.namespace.shards))
            try:
                records.delete(self.parts, place.namespace, kind, [key])
            except TierDownError:
                self.seen["not deleted tier_down"] += 1

    def _a_snapshot_is_damaged(self) -> None:
        names = self.ledger.names(RecordClass.SNAPSHOT)
        if names:
            payload = self.ledger.last(RecordClass.SNAPSHOT, self.random.choice(names[-12:])).payload
            assert isinstance(payload, bytearray)
            payload[-1] ^= 1

    def _a_block_is_damaged(self) -> None:
        names = self.ledger.names(RecordClass.BLOCK)
        if names:
            chosen = self.random.choice(names[-40:])
            if isinstance(self.blocks.lookup([chosen])[0], Entry):
                payload = self.ledger.last(RecordClass.BLOCK, chosen).payload
                for shard in range(2):  # It is found by its key, and so may be that of another shard.
                    self.ledger.damaged(RecordId(chosen.key, shard))
                self.factory.damage(self.blocks, Record(chosen, payload, 0, Provenance.EXACT))

    def _the_service_stops_and_starts(self) -> None:
        self._stop()
        self._restart()

    def _the_service_dies_and_starts(self) -> None:
        """Leases are gone with it, and nobody counts their requests."""
        assert self._counted_tokens() <= sum(self.life.prompts.values())
        self.parts.leases.release_all()
        self._restart()

    def _restart(self) -> None:
        if self.blocks.is_durable:
            self.blocks = self.factory.reopen(self.blocks)
        self._begin()


_EVENTS = [
    (World._a_moment_passes, 30),
    (World._a_lease_time_passes, 4),
    (World._a_pool_time_passes, 3),
    (World._hours_pass, 1),
    (World._the_wall_clock_steps, 1),
    (World._upkeep_is_done, 10),
    (World._the_pool_goes, 1),
    (World._the_pool_comes_back, 8),
    (World._a_snapshot_is_evicted, 3),
    (World._a_promised_snapshot_is_lost, 12),
    (World._a_promised_snapshot_makes_way_for_a_replayed_one, 4),
    (World._records_are_deleted, 4),
    (World._a_block_is_damaged, 6),
    (World._a_snapshot_is_damaged, 4),
    (World._the_service_stops_and_starts, 1),
    (World._the_service_dies_and_starts, 1),
]
