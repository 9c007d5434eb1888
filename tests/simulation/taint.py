"""A cache, an engine and some conversations in one process, and the truth about each record.

The planner never sees the truth. It sees provenance, which is what stores were allowed to claim.
"""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from kvshelf_client.words import Provenance, RecordClass
from service.planner import Ran, fallback_plan, judge_store, resume_plan
from service.planner.base import Cached, Layout, Mode, Replay, Request, ResumePlan, Snapshot
from tests.simulation.engine import Engine, Held, Loaded, Tokens, next_prompt


class Stored(NamedTuple):
    """A record: what the cache knows of it, and the truth."""

    provenance: Provenance
    tainted: bool


class World:
    """One history. Equal seeds make equal histories."""

    def __init__(self, layout: Layout, seed: int) -> None:
        self.layout = layout
        self.random = Random(seed)
        self.records: dict[tuple[RecordClass, Tokens], Stored] = {}
        self.engine = Engine(layout, self.random)
        self.prompts: list[Tokens] = [()]
        self.seen: Counter[str] = Counter()

    def step(self) -> None:
        """One request: plan, run, store; then some records expire."""
        prompt = next_prompt(self.random, self.prompts)
        request = self.engine.request(prompt)
        plan = self._plan(request, prompt)
        after = self.engine.run(plan, request, prompt, self._loaded(plan, prompt))
        self._store(plan, request, after)
        self.prompts.append(after.tokens)
        for key in list(self.records):
            if self._chance(0.03):
                del self.records[key]

    def _chance(self, probability: float) -> bool:
        return self.random.random() < probability

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

    def _loaded(self, plan: ResumePlan, prompt: Tokens) -> Loaded:
        load, block = plan.load, self.layout.block_tokens
        blocks = {
            end: self.records[RecordClass.BLOCK, prompt[:end]].tainted
            for end in range(load.global_start + block, load.global_end + 1, block)
        }
        if load.snapshot_boundary is None:
            return Loaded(blocks)
        return Loaded(blocks, self.records[RecordClass.SNAPSHOT, prompt[: load.snapshot_boundary]].tainted)

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
