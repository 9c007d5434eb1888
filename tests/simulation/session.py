"""A client of the service: one engine of one or more ranks, which serves a request after the other.

Each request is a generator that stops wherever the world may strike: between plan and fetch, between the fetches of two
shards, in the middle of one, before and between the stores.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kvshelf_client.frames import Frame, FrameAssembler, FrameHeader, FrameKind, checksum_of
from kvshelf_client.words import Provenance, RecordClass
from service.leases.book import LeaseLimitError, UnknownLeaseError
from service.leases.lease import Answer, Lease, RanPlan
from service.planner import request_for, resume_plan
from service.planner.base import Cached, Mode, Replay, Request, ResumePlan
from service.shelf.fetching import open_fetch
from service.shelf.finishing import finish
from service.shelf.planning import Ask, make_plan
from service.shelf.storing import Upload, ran_plan, store
from storage.base import Payload
from tests.simulation.engine import Engine, Held, Loaded, Tokens, next_prompt
from tests.simulation.ledger import Place
from tests.simulation.payloads import UNTAINTED, payload_of
from tests.support.faulty import CrashError
from tests.support.planning import engine_alone

if TYPE_CHECKING:
    from tests.simulation.world import World

PLANS_A_REQUEST = 3
MAX_PAYLOAD_BYTES = 1 << 16


@dataclass
class Turn:
    """A request under way. ``ran`` is the plan that was run, None when it ran cold and was not told to."""

    prompt: Tokens
    request: Request
    keys: list[bytes]
    request_id: str
    lease: Lease | None = None
    ran: Answer | None = None
    is_second_guessed: bool = False
    """The snapshot was there when it was fetched, and gone when it was fetched once more for nothing."""


class Sent(NamedTuple):
    """What a fetch of one shard brought: the plan it is for, and the truth about what came. Misses are left out."""

    answer: Answer
    loaded: Loaded
    exact: frozenset[int]
    """The ends of the blocks that came as exact."""
    is_complete: bool


class Piece(NamedTuple):
    """A record that an engine has to store: the truth about it, and what the engine itself makes of it."""

    kind: RecordClass
    end_tokens: int
    is_tainted: bool
    is_known_exact: bool
    is_astray: bool

    def claim(self, *, is_judged: bool) -> Provenance:
        """Where the service judges, anything is claimed that is not known to be wrong; else what is known."""
        is_claimed = not self.is_astray if is_judged else self.is_known_exact
        return Provenance.EXACT if is_claimed else Provenance.REPLAYED


class Session:
    """One client in one namespace. ``life`` never ends; each step of it is one call to the service."""

    def __init__(self, world: "World", place: Place, name: str) -> None:
        self.world, self.place, self.name = world, place, name
        self.engine = Engine(place.namespace.layout, world.random)
        self.life = self._live()
        self.leased: Lease | None = None
        self._requests = 0
        self._previous: bytes | None = None

    def _live(self) -> Iterator[None]:
        while True:
            yield from self._serve()

    def _chance(self, probability: float) -> bool:
        return self.world.random.random() < probability

    def _saw(self, what: str) -> None:
        self.world.seen[what] += 1

    def _serve(self) -> Iterator[None]:
        turn = self._next_turn()
        loaded: Loaded | None = None
        for attempt in range(PLANS_A_REQUEST):
            turn.lease = self.leased = self._plan(turn)
            if turn.lease is None:
                break
            yield
            loaded = yield from self._load(turn, turn.lease)
            if loaded is not None or self._chance(0.3):
                break
            self._saw("planned again" if attempt + 1 < PLANS_A_REQUEST else "gave up")
        if turn.ran is None:
            self._ask_for_cold(turn)
        plan = turn.ran.plan if turn.ran else self._cold(turn)
        after = self.engine.run(plan, turn.request, turn.prompt, loaded or Loaded({}))
        self._saw(f"ran {plan.mode} {'exact' if plan.exact else 'approximate'}")
        self.place.prompts.append(after.tokens)
        yield
        if self._chance(0.2):
            self._release(turn)
            yield from self._store(turn, plan, after)
        else:
            yield from self._store(turn, plan, after)
            self._release(turn)
        yield

    def _next_turn(self) -> Turn:
        prompt = next_prompt(self.world.random, self.place.prompts)
        self._requests += 1
        keys = self.place.keys_of(prompt)
        return Turn(prompt, self.engine.request(prompt), keys, f"{self.name}-{self._requests}")

    def _ask_for_cold(self, turn: Turn) -> None:
        """A cold run may ask for its plan, so that all it stores is judged by that."""
        layout = self.place.namespace.layout
        if layout.state_layers and self._chance(0.3):
            turn.request = request_for(layout, len(turn.prompt), supports=())
            turn.lease = self.leased = self._plan(turn)
            if turn.lease is not None:
                turn.ran = turn.lease.primary
                assert turn.ran.plan.mode is Mode.COLD
                self._saw("asked for a cold plan")

    def _cold(self, turn: Turn) -> ResumePlan:
        self._saw("ran cold by itself")
        layout = self.place.namespace.layout
        return resume_plan(layout, request_for(layout, len(turn.prompt), supports=()), Cached(0, 0))

    # Plan.

    def _plan(self, turn: Turn) -> Lease | None:
        ttl_seconds = self.world.random.choice([5.0, 60.0, 600.0])
        ask = Ask(self.place.namespace, turn.request, turn.keys, turn.request_id, ttl_seconds)
        try:
            lease = make_plan(self.world.parts, ask).lease
        except LeaseLimitError:
            self._saw("lease limit")
            return None
        self.world.planned(self.place, turn.request_id, len(turn.prompt), lease)
        layout, request = self.place.namespace.layout, turn.request
        for answer in (lease.primary, lease.fallback):
            if answer is None:
                continue
            assert answer.plan.exact or request.allow_approximate, f"{answer} is not what was asked for"
            assert answer.plan.run_start >= engine_alone(layout, request), f"{answer} runs more than the engine alone"
        return lease

    # Fetch.

    def _load(self, turn: Turn, lease: Lease) -> Generator[None, None, Loaded | None]:
        """Fetch what the plan loads, shard by shard or all at once. Sets ``turn.ran``; None when something failed."""
        sent: dict[int, Sent] = {}
        try:
            yield from self._fetch_all(turn, lease, sent)
            loaded = _together(sent) if all(one.is_complete for one in sent.values()) else None
            turn.ran = next(iter(sent.values())).answer
            if loaded is None and self.place.namespace.layout.block_bytes and self._chance(0.7):
                self._keep(turn, turn.ran.plan, sent)
            if loaded is not None and turn.ran is lease.primary and lease.fallback is not None:
                loaded = yield from self._doubt(turn, lease, lease.fallback, loaded)
        except UnknownLeaseError:
            self._saw("lease gone")
            loaded = None
        if loaded is None:
            turn.ran = None
        return loaded

    def _keep(self, turn: Turn, plan: ResumePlan, sent: dict[int, Sent]) -> None:
        """The blocks ahead of the first one that is missing are good: plan again with them in HBM."""
        exact = frozenset.intersection(*(one.exact for one in sent.values()))
        turn.request = self.engine.keep(plan, turn.request, turn.prompt, _together(sent), exact)
        self._saw("kept what came")

    def _fetch_all(self, turn: Turn, lease: Lease, sent: dict[int, Sent], *, fall_back: bool = False) -> Iterator[None]:
        """Fetch every shard, and those again that came before another one fell back."""
        shards = range(self.place.namespace.shards)
        if self._chance(0.3):
            sent.update((yield from self._fetch(turn, lease, None, fall_back=fall_back)))
        while True:
            in_force = lease.fallback if any(one.answer is lease.fallback for one in sent.values()) else lease.primary
            stale = [shard for shard in shards if shard not in sent or sent[shard].answer is not in_force]
            if not stale:
                return
            self._saw("fetched again after another shard fell back" if stale[0] in sent else "fetched a shard")
            sent.update((yield from self._fetch(turn, lease, self.world.random.choice(stale), fall_back=fall_back)))

    def _doubt(
        self, turn: Turn, lease: Lease, fallback: Answer, loaded: Loaded
    ) -> Generator[None, None, Loaded | None]:
        """The snapshot came. Maybe it is bad all the same, or is fetched again by mistake."""
        if self._chance(0.25):
            yield
            again = yield from self._fetch(turn, lease, None)
            turn.is_second_guessed = any(one.answer is fallback for one in again.values())
            self._saw("second-guessed" if turn.is_second_guessed else "fetched twice")
        elif self._chance(0.3):
            turn.ran = fallback
            if fallback_is_there(fallback, loaded, self.place.namespace.layout.block_tokens) and self._chance(0.5):
                self._saw("fell back by itself")
                return Loaded(loaded.blocks)
            self._saw("asked for the fallback")
            sent: dict[int, Sent] = {}
            yield from self._fetch_all(turn, lease, sent, fall_back=True)
            assert all(one.answer is fallback for one in sent.values())
            return _together(sent) if all(one.is_complete for one in sent.values()) else None
        return loaded

    def _fetch(
        self, turn: Turn, lease: Lease, shard: int | None, *, fall_back: bool = False
    ) -> Generator[None, None, dict[int, Sent]]:
        fetch = open_fetch(self.world.parts, None, lease.lease_id, shard, _name_of_fallback, fall_back=fall_back)
        data = bytearray()
        for batch in fetch.batches:
            for buffer in batch:
                data += buffer
            if self._chance(0.5):
                yield
        assert len(data) == fetch.length_bytes, f"announced {fetch.length_bytes} bytes, sent {len(data)}"
        arrived = FrameAssembler(MAX_PAYLOAD_BYTES).feed(bytes(data))
        frames = [Frame(header, bytearray(payload)) for header, payload in arrived]
        answer = lease.primary
        if fetch.fell_back:
            assert lease.fallback is not None
            answer = lease.fallback
            head = frames.pop(0)
            assert head.header.kind is FrameKind.FALLBACK
            assert bytes(head.payload) == answer.plan_id.encode()
            self._saw("fell back")
        shards = range(self.place.namespace.shards) if shard is None else range(shard, shard + 1)
        return self._decode(turn, answer, shards, frames)

    def _decode(self, turn: Turn, answer: Answer, shards: range, frames: list[Frame]) -> dict[int, Sent]:
        """Check every frame against what was promised and what was stored."""
        load, tokens = answer.plan.load, self.place.namespace.layout.block_tokens
        expected = [(FrameKind.SNAPSHOT, load.snapshot_boundary, shard) for shard in shards if load.snapshot_boundary]
        expected += [
            (FrameKind.BLOCK, end, shard)
            for shard in shards
            for end in range(load.global_start + tokens, load.global_end + 1, tokens)
        ]
        assert [(frame.header.kind, frame.header.end_tokens, frame.header.shard) for frame in frames] == expected
        blocks: dict[int, dict[int, bool]] = {shard: {} for shard in shards}
        exact: dict[int, set[int]] = {shard: set() for shard in shards}
        snapshots: dict[int, bool] = {}
        is_complete = dict.fromkeys(shards, True)
        for header, payload in frames:
            assert header.key == turn.keys[header.end_tokens // tokens - 1]
            if header.miss:
                self._saw("a block was missing")
                assert not any(payload), "a miss carries bytes"
                is_complete[header.shard] = False
                continue
            is_tainted = self.world.ledger.check(self.place.namespace, header, payload) != UNTAINTED
            if answer.plan.exact:
                assert header.provenance is Provenance.EXACT, f"{answer} is exact and loads {header}"
            if header.kind is FrameKind.SNAPSHOT:
                snapshots[header.shard] = is_tainted
            else:
                blocks[header.shard][header.end_tokens] = is_tainted
                exact[header.shard] |= {header.end_tokens} if header.provenance is Provenance.EXACT else set()
        return {
            shard: Sent(
                answer, Loaded(blocks[shard], snapshots.get(shard)), frozenset(exact[shard]), is_complete[shard]
            )
            for shard in shards
        }

    # Store.

    def _store(self, turn: Turn, plan: ResumePlan, after: Held) -> Iterator[None]:
        """Each rank stores its own shard, of whatever it finds worth a try."""
        pieces = list(self._pieces(plan, after))
        keys, run_id = self.place.keys_of(after.tokens), self.world.next_run()
        for shard in range(self.place.namespace.shards):
            if self._chance(0.1):
                continue
            plan_id = self._named(turn)
            is_judged = plan_id is not None or self.place.namespace.layout.replay is Replay.BOUNDED
            frames: list[tuple[FrameHeader, Payload]] = []
            for piece in pieces:
                key = keys[piece.end_tokens // self.place.namespace.layout.block_tokens - 1]
                truth = run_id if piece.is_tainted else UNTAINTED
                size = self.place.bytes_of(piece.kind)
                payload = payload_of(piece.kind, key, shard, truth, size)
                kind, claim = FrameKind(piece.kind), piece.claim(is_judged=is_judged)
                header = FrameHeader(kind, key, size, checksum_of(payload), claim, shard, piece.end_tokens)
                if self._chance(0.03):
                    header = self._spoilt(header)
                frames.append((header, payload))
            self._upload(plan_id, frames)
            yield
        if keys:
            self._previous = keys[-1]

    def _spoilt(self, header: FrameHeader) -> FrameHeader:
        """A header that no record of this namespace can have."""
        return self.world.random.choice(
            [
                header._replace(length_bytes=header.length_bytes + 1),
                header._replace(shard=self.place.namespace.shards),
                header._replace(end_tokens=header.end_tokens + 1),
                header._replace(checksum=header.checksum ^ 1),
            ]
        )

    def _upload(self, plan_id: str | None, frames: list[tuple[FrameHeader, Payload]]) -> None:
        parts, namespace = self.world.parts, self.place.namespace
        upload = Upload(namespace, ran_plan(parts, None, namespace, plan_id), self._chance(0.5), self._previous)
        until, is_ample = self.world.lives_until(), self.world.is_ample
        try:
            outcomes = store(parts, upload, frames)
        except CrashError:
            for header, payload in frames:
                self.world.ledger.unheard(namespace, header, payload)
            self.world.crash()
            return
        for outcome, (header, payload) in zip(outcomes, frames, strict=True):
            self._saw(f"{outcome.outcome} {outcome.reason}")
            self.world.ledger.settle(
                namespace,
                header,
                outcome,
                payload,
                lives_until=until,
                is_durable=upload.durable and is_ample,
                is_sure=upload.durable or not is_ample,
            )

    def _pieces(self, plan: ResumePlan, after: Held) -> Iterator[Piece]:
        """What to store. What must be refused is tried, too."""
        layout, known = self.place.namespace.layout, after.exact_tokens
        for end in range(layout.block_tokens, len(after.tokens) + 1, layout.block_tokens):
            if layout.block_bytes and self._chance(0.8):
                is_tainted = any(after.tainted[end - layout.block_tokens : end])
                yield Piece(RecordClass.BLOCK, end, is_tainted, known >= end, after.is_astray)
            if layout.state_layers and end > plan.run_start and self._chance(0.5):
                is_halfway = end < plan.matched_tokens
                is_known = not is_halfway and known == len(after.tokens)
                yield Piece(RecordClass.SNAPSHOT, end, is_halfway or after.state_tainted, is_known, after.is_astray)

    def _named(self, turn: Turn) -> str | None:
        """The plan a store names: the right one, or one that must not do harm."""
        lease, chance = turn.lease, self.world.random.random()
        if chance < 0.1 or lease is None:
            return None
        if chance < 0.15:
            return "nobody's plan"
        if chance < 0.2:
            return self.world.plan_of_another(self.place)
        if turn.ran is None:
            return self.world.random.choice([one.plan_id for one in (lease.primary, lease.fallback) if one])
        if lease.fell_back and chance < 0.5:
            self._saw("named the plan that was void")
            return lease.primary.plan_id
        return turn.ran.plan_id

    # Release.

    def _release(self, turn: Turn) -> None:
        """Say what was run; or forget it, and let the lease end by itself."""
        if turn.lease is None or self._chance(0.15):
            return
        said = RanPlan.PLAN
        if turn.ran is None:
            said = RanPlan.COLD
        elif turn.ran is turn.lease.fallback and not (turn.lease.fell_back and self._chance(0.5)):
            said = RanPlan.FALLBACK
        try:
            _, counted = finish(self.world.parts, None, turn.lease.lease_id, said)
        except UnknownLeaseError:
            self._saw("released too late")
            return
        if turn.ran is None:
            assert counted.mode is Mode.COLD
        elif not turn.is_second_guessed:
            assert counted == turn.ran.plan, f"ran {turn.ran.plan}, counted as {counted}"


def _name_of_fallback(lease: Lease) -> bytes:
    return lease.fallback.plan_id.encode() if lease.fallback else b""


def _together(sent: dict[int, Sent]) -> Loaded:
    """What all shards have of what was loaded: tainted where any of them is."""
    loads = [one.loaded for one in sent.values()]
    snapshots = [load.snapshot for load in loads if load.snapshot is not None]
    ends = set(loads[0].blocks).intersection(*(load.blocks for load in loads))
    return Loaded({end: any(load.blocks[end] for load in loads) for end in ends}, any(snapshots) if snapshots else None)


def fallback_is_there(fallback: Answer, loaded: Loaded, block_tokens: int) -> bool:
    """Whether what was loaded for the plan is all that its fallback needs."""
    load = fallback.plan.load
    return all(
        end in loaded.blocks for end in range(load.global_start + block_tokens, load.global_end + 1, block_tokens)
    )
