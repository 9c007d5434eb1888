"""A cache, an engine and some conversations in one process, and beside each piece of KV the truth about it.

KV is *tainted* when its bytes differ from those of a full prefill: what runs after a bounded replay is, and what runs
on anything tainted. The planner never sees the truth. It sees provenance, which is what stores were allowed to claim.
"""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from kvshelf_client.words import Provenance, RecordClass
from service.planner import Ran, fallback_plan, judge_store, resume_plan
from service.planner.base import Ability, Cached, Layout, Mode, Replay, Request, ResumePlan, Snapshot

Tokens = tuple[int, ...]


class Stored(NamedTuple):
    """A record: what the cache knows of it, and the truth."""

    provenance: Provenance
    tainted: bool


class Held(NamedTuple):
    """What the engine has in HBM: KV of ``tokens`` with the truth about each, and the state at their end.

    ``exact_tokens`` is what the engine itself takes for exact: it goes by the plans it was given.
    """

    tokens: Tokens = ()
    tainted: tuple[bool, ...] = ()
    state_tainted: bool = False
    exact_tokens: int = 0
    is_astray: bool = False
    """It was computed in a way that is not exact though its plan was, and the engine says so when it stores."""


class World:
    """One history. Equal seeds make equal histories."""

    def __init__(self, layout: Layout, seed: int) -> None:
        self.layout = layout
        self.random = Random(seed)
        self.records: dict[tuple[RecordClass, Tokens], Stored] = {}
        self.held = Held()
        self.prompts: list[Tokens] = [()]
        self.seen: Counter[str] = Counter()

    def step(self) -> None:
        """One request: plan, run, store; then some records expire."""
        prompt = self._prompt()
        request = self._request(prompt)
        plan = self._plan(request, prompt)
        after = self._run(plan, request, prompt)
        self._store(plan, request, after)
        self.held = after
        self.prompts.append(after.tokens)
        for key in list(self.records):
            if self._chance(0.03):
                del self.records[key]

    def _chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def _prompt(self) -> Tokens:
        """An earlier conversation that goes on, is asked again, or takes another turn somewhere."""
        earlier = self.random.choice(self.prompts[-4:])
        kept = earlier[: self.random.randint(0, len(earlier))] if self._chance(0.3) else earlier
        if len(kept) > 60:
            kept = kept[:20]
        return kept + tuple(self.random.randrange(1000) for _ in range(self.random.randint(1, 9)))

    def _request(self, prompt: Tokens) -> Request:
        """What the engine asks. It never says that it holds more exact KV than it knows of."""
        held = 0
        while held < min(len(prompt), len(self.held.tokens)) and prompt[held] == self.held.tokens[held]:
            held += 1
        if self._chance(0.5):
            held = self.random.randint(0, held)
        exact = 0 if self._chance(0.2) else min(held, self.held.exact_tokens)
        return Request(
            prompt_tokens=len(prompt),
            allow_approximate=self._chance(0.6),
            supports=frozenset(ability for ability in Ability if self._chance(0.8)),
            hbm_tokens=held,
            hbm_exact_tokens=exact,
            hbm_state=held == len(self.held.tokens) and self._chance(0.7),
            max_load_bytes_per_saved_token=self.random.choice([None, None, None, 1.0, 3.0]),
        )

    def _plan(self, request: Request, prompt: Tokens) -> ResumePlan:
        """The plan, or its fallback when the snapshot is lost on the way."""
        cached = Cached(
            self._stored_up_to(prompt, request.hbm_tokens, Provenance.REPLAYED),
            self._stored_up_to(prompt, request.hbm_exact_tokens, Provenance.EXACT),
            tuple(self._live_snapshots(prompt)),
        )
        plan = resume_plan(self.layout, request, cached)
        if plan.mode is Mode.SNAPSHOT and self._chance(0.3):
            del self.records[RecordClass.SNAPSHOT, prompt[: plan.matched_tokens]]
            plan = fallback_plan(self.layout, request, cached)
        self.seen[f"{plan.mode} {'exact' if plan.exact else 'approximate'}"] += 1
        return plan

    def _stored_up_to(self, prompt: Tokens, held: int, least: Provenance) -> int:
        end = self.layout.floor_to_block(held)
        while (end := end + self.layout.block_tokens) <= len(prompt):
            stored = self.records.get((RecordClass.BLOCK, prompt[:end]))
            if stored is None or stored.provenance < least:
                break
        return end - self.layout.block_tokens

    def _live_snapshots(self, prompt: Tokens) -> Iterator[Snapshot]:
        for end in range(self.layout.block_tokens, len(prompt) + 1, self.layout.block_tokens):
            stored = self.records.get((RecordClass.SNAPSHOT, prompt[:end]))
            if stored is not None:
                yield Snapshot(end, stored.provenance)

    def _run(self, plan: ResumePlan, request: Request, prompt: Tokens) -> Held:
        """Run the plan and generate a few tokens; what the engine holds afterwards, and the truth about it."""
        below = self._kv_below(plan, prompt)
        tainted = self._is_state_tainted(plan, prompt) or any(below)
        if plan.exact and tainted:
            raise AssertionError(f"{plan} claims to be exact and stands on replayed KV")
        is_astray = self._chance(0.1)
        tainted = tainted or is_astray
        tokens = prompt + tuple(self.random.randrange(1000) for _ in range(self.random.randint(0, 5)))
        is_loading = plan.load.global_start < plan.load.global_end
        untouched = min(plan.matched_tokens, plan.load.global_start if is_loading else plan.matched_tokens)
        return Held(
            tokens=tokens,
            tainted=below + (tainted,) * (len(tokens) - len(below)),
            state_tainted=tainted,
            exact_tokens=len(tokens) if plan.exact and not is_astray else min(request.hbm_exact_tokens, untouched),
            is_astray=is_astray,
        )

    def _kv_below(self, plan: ResumePlan, prompt: Tokens) -> tuple[bool, ...]:
        """The truth about the global KV below ``matched_tokens``: first what is held, then what is loaded."""
        kv = list(self.held.tainted[: plan.load.global_start])
        block = self.layout.block_tokens
        for end in range(plan.load.global_start + block, plan.load.global_end + 1, block):
            kv += [self.records[RecordClass.BLOCK, prompt[:end]].tainted] * block
        if len(kv) != plan.matched_tokens:
            raise AssertionError(f"{plan} leaves a hole: there is KV of {len(kv)} tokens")
        return tuple(kv)

    def _is_state_tainted(self, plan: ResumePlan, prompt: Tokens) -> bool:
        layout = self.layout
        if plan.mode is Mode.SNAPSHOT:
            return self.records[RecordClass.SNAPSHOT, prompt[: plan.matched_tokens]].tainted
        if plan.mode is Mode.RESIDENT:
            return layout.state_layers > 0 and self.held.state_tainted
        if plan.mode is Mode.EXACT_REBUILD:
            reach = layout.window_tokens + (layout.state_layers - 1) * (layout.window_tokens - 1)
            return plan.replayed_tokens < reach
        return plan.mode is Mode.BOUNDED_REPLAY

    def _store(self, plan: ResumePlan, request: Request, after: Held) -> None:
        """Try to store anything, claiming that it is exact wherever the engine knows no better."""
        ran = None if self._names_no_plan() else Ran.of(plan, request)
        block = self.layout.block_tokens
        for end in range(block, len(after.tokens) + 1, block):
            if self._chance(0.8):
                self._store_one(ran, RecordClass.BLOCK, after, end, any(after.tainted[end - block : end]))
            if end > plan.run_start and self._chance(0.5):
                halfway = end < plan.matched_tokens
                self._store_one(ran, RecordClass.SNAPSHOT, after, end, halfway or after.state_tainted)

    def _names_no_plan(self) -> bool:
        """Where replay is not bounded a store without a plan is taken at its word, and this engine has none to give."""
        return self.layout.replay is Replay.BOUNDED and self._chance(0.1)

    def _store_one(self, ran: Ran | None, kind: RecordClass, after: Held, end: int, tainted: bool) -> None:
        claimed = Provenance.REPLAYED if after.is_astray else Provenance.EXACT
        allowed = judge_store(self.layout, ran, kind, end, claimed)
        if not isinstance(allowed, Provenance):
            self.seen["refused"] += 1
            return
        if allowed is Provenance.EXACT and tainted:
            raise AssertionError(f"a tainted {kind.name} at {end} passes for exact after {ran}")
        self.seen[f"stored {'tainted' if tainted else 'untainted'} {allowed.name.lower()}"] += 1
        before = self.records.get((kind, after.tokens[:end]))
        if before is None or before.provenance < allowed:
            self.records[kind, after.tokens[:end]] = Stored(allowed, tainted)
