"""An engine with KV in its HBM, and beside each piece of KV the truth about it.

KV is *tainted* when its bytes differ from those of a full prefill: what runs after a bounded replay is, and what runs
on anything tainted. The engine itself goes by the plans it was given and never sees the truth.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from service.planner.base import Ability, Layout, Mode, Request, ResumePlan

Tokens = tuple[int, ...]


class Held(NamedTuple):
    """What the engine has in HBM: KV of ``tokens`` with the truth about each, and the state at their end.

    ``exact_tokens`` is what the engine itself takes for exact: it goes by the plans it was given.
    """

    tokens: Tokens = ()
    tainted: tuple[bool, ...] = ()
    state_tainted: bool = False
    exact_tokens: int = 0
    has_state: bool = True
    """Whether the state at their end is there at all."""
    is_astray: bool = False
    """It was computed in a way that is not exact though its plan was, and the engine says so when it stores."""


class Loaded(NamedTuple):
    """The truth about what was loaded for a plan: whether a block is tainted, by its end, and whether the snapshot is.

    ``snapshot`` is None where none was loaded.
    """

    blocks: Mapping[int, bool]
    snapshot: bool | None = None


class Engine:
    """One engine, which serves one request after the other. ``held`` is what the last one left in HBM."""

    def __init__(self, layout: Layout, random: Random) -> None:
        self.layout = layout
        self.held = Held()
        self._random = random

    def request(self, prompt: Tokens) -> Request:
        """What the engine asks. It never says that it holds more exact KV than it knows of."""
        held = 0
        while held < min(len(prompt), len(self.held.tokens)) and prompt[held] == self.held.tokens[held]:
            held += 1
        if self._chance(0.5):
            held = self._random.randint(0, held)
        exact = 0 if self._chance(0.2) else min(held, self.held.exact_tokens)
        return Request(
            prompt_tokens=len(prompt),
            allow_approximate=self._chance(0.6),
            supports=frozenset(ability for ability in Ability if self._chance(0.8)),
            hbm_tokens=held,
            hbm_exact_tokens=exact,
            hbm_state=held == len(self.held.tokens) and self.held.has_state and self._chance(0.7),
            max_load_bytes_per_saved_token=self._random.choice([None, None, None, None, 1.0, 12.0]),
        )

    def run(self, plan: ResumePlan, request: Request, prompt: Tokens, loaded: Loaded) -> Held:
        """Run a plan and generate a few tokens. What is in HBM afterwards, and the truth about it.

        Raises:
            AssertionError: the plan claims to be exact and stands on tainted KV, or leaves a hole.
        """
        is_state_tainted = self._is_state_tainted(plan, loaded)
        below = self._kv_below(plan, loaded, is_state_tainted)
        tainted = is_state_tainted or any(below)
        if plan.exact and tainted:
            raise AssertionError(f"{plan} claims to be exact and stands on replayed KV")
        is_astray = self._chance(0.1)
        tainted = tainted or is_astray
        tokens = prompt + tuple(self._random.randrange(1000) for _ in range(self._random.randint(0, 5)))
        is_loading = plan.load.global_start < plan.load.global_end
        untouched = min(plan.matched_tokens, plan.load.global_start if is_loading else plan.matched_tokens)
        self.held = Held(
            tokens=tokens,
            tainted=below + (tainted,) * (len(tokens) - len(below)),
            state_tainted=tainted,
            exact_tokens=len(tokens) if plan.exact and not is_astray else min(request.hbm_exact_tokens, untouched),
            is_astray=is_astray,
        )
        return self.held

    def keep(
        self, plan: ResumePlan, request: Request, prompt: Tokens, loaded: Loaded, exact: Collection[int]
    ) -> Request:
        """Of a load that broke off, what came stays in HBM. Returns the request to plan again with.

        Args:
            plan: what was being loaded.
            request: what it answers.
            prompt: the request's.
            loaded: the truth about what came.
            exact: the ends of the blocks that came as exact.
        """
        block, start = self.layout.block_tokens, plan.load.global_start
        end, exact_end = start, min(start, request.hbm_exact_tokens)
        while end + block in loaded.blocks:
            end += block
            exact_end += block if exact_end == end - block and end in exact else 0
        kept = [loaded.blocks[at] for at in range(start + block, end + 1, block) for _ in range(block)]
        tainted = (*self.held.tainted[:start], *kept)
        self.held = Held(prompt[:end], tainted, exact_tokens=exact_end, has_state=False)
        return replace(request, hbm_tokens=end, hbm_exact_tokens=exact_end, hbm_state=False)

    def _kv_below(self, plan: ResumePlan, loaded: Loaded, is_state_tainted: bool) -> tuple[bool, ...]:
        """The truth about the global KV below ``matched_tokens``: first what is held, then what is loaded."""
        if not self.layout.block_bytes:  # The state is all there is.
            return (is_state_tainted,) * plan.matched_tokens
        kv = list(self.held.tainted[: plan.load.global_start])
        block = self.layout.block_tokens
        for end in range(plan.load.global_start + block, plan.load.global_end + 1, block):
            kv += [loaded.blocks[end]] * block
        if len(kv) != plan.matched_tokens:
            raise AssertionError(f"{plan} leaves a hole: there is KV of {len(kv)} tokens")
        return tuple(kv)

    def _is_state_tainted(self, plan: ResumePlan, loaded: Loaded) -> bool:
        layout = self.layout
        if plan.mode is Mode.SNAPSHOT:
            if loaded.snapshot is None:
                raise AssertionError(f"{plan} has no snapshot")
            return loaded.snapshot
        if plan.mode is Mode.RESIDENT:
            return layout.state_layers > 0 and self.held.state_tainted
        if plan.mode is Mode.EXACT_REBUILD:
            reach = layout.window_tokens + (layout.state_layers - 1) * (layout.window_tokens - 1)
            return plan.replayed_tokens < reach
        return plan.mode is Mode.BOUNDED_REPLAY

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability


def next_prompt(random: Random, earlier: Sequence[Tokens]) -> Tokens:
    """An earlier conversation that goes on, is asked again, or takes another turn somewhere."""
    kept = random.choice(earlier[-4:])
    if random.random() < 0.3:
        kept = kept[: random.randint(0, len(kept))]
    if len(kept) > 60:
        kept = kept[:20]
    return kept + tuple(random.randrange(1000) for _ in range(random.randint(1, 9)))
