"""A second planner, for tests alone: it lists every candidate there could be and takes the best. Slow and plain.

It shares the types of ``service.planner.base`` with the planner, and no line of its rules.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kvshelf_client.words import Provenance
from service.planner.base import Ability, Cached, Layout, Replay, Request


class Answer(NamedTuple):
    """A candidate, flat, with the modes as plain words."""

    mode: str
    exact: bool
    matched: int
    run_start: int
    held: int
    load_start: int
    load_end: int
    snapshot: int | None
    ssd_bytes: int
    dram_bytes: int

    @property
    def load_bytes(self) -> int:
        return self.ssd_bytes + self.dram_bytes


MODES = ["full_attention", "resident", "snapshot", "bounded_replay", "exact_rebuild", "cold"]


def best_answer(layout: Layout, request: Request, cached: Cached) -> Answer:
    """The best of all allowed candidates."""
    ranked = sorted(
        (answer for answer in every_answer(layout, request, cached) if allowed(answer, request)),
        key=lambda a: (
            request.prompt_tokens - a.run_start,
            0 if a.exact else 1,
            a.load_bytes,
            a.matched,
            MODES.index(a.mode),
        ),
    )
    return ranked[0]


def allowed(answer: Answer, request: Request) -> bool:
    """Whether the engine supports and accepts it, and its bytes are within the limit."""
    if answer.mode in ("snapshot", "bounded_replay", "exact_rebuild") and Ability(answer.mode) not in request.supports:
        return False
    if not request.allow_approximate and not answer.exact:
        return False
    limit = request.max_load_bytes_per_saved_token
    if limit is not None and answer.run_start > 0:
        return answer.load_bytes / answer.run_start <= limit
    return True


def every_answer(layout: Layout, request: Request, cached: Cached) -> Iterator[Answer]:
    """All candidates: from G and from G_exact, at H alone or, with a limit, at every boundary up to H."""
    length, block = request.prompt_tokens, layout.block_tokens
    cap = length - max(1, layout.decoder_window_tokens)
    yield Answer("cold", True, 0, 0, request.hbm_exact_tokens, 0, 0, None, 0, 0)

    for exact_kv in (False, True):
        held = request.hbm_exact_tokens if exact_kv else request.hbm_tokens
        tokens = cached.exact_global_tokens if exact_kv else cached.global_tokens
        tokens = max(tokens, held // block * block)
        if layout.block_bytes == 0:
            tokens = length // block * block
        high = max(0, min(tokens, cap) // block * block)

        if layout.state_layers == 0:
            start = min(held, cap)
            if start > 0:
                yield Answer("resident", exact_kv, start, start, held, start, start, None, 0, 0)
        elif request.hbm_state and 0 < held == request.hbm_tokens <= cap:
            yield Answer("resident", exact_kv, held, held, held, held, held, None, 0, 0)

        every = range(0, high + 1, block) if request.max_load_bytes_per_saved_token is not None else [high]
        for end in every:
            for mode, again, exact in replays(layout, exact_kv):
                if end - again > 0:
                    yield loading(layout, mode, exact, end, end - again, held, False)
        for snapshot in cached.snapshots:
            if layout.state_layers > 0 and snapshot.boundary_tokens <= high:
                exact = exact_kv and snapshot.provenance == Provenance.EXACT
                at = snapshot.boundary_tokens
                yield loading(layout, "snapshot", exact, at, at, held, True)


def replays(layout: Layout, exact_kv: bool) -> Iterator[tuple[str, int, bool]]:
    """The ways to go on at a boundary without its state: mode, tokens to run again, exact."""
    if layout.state_layers == 0:
        yield "full_attention", 0, exact_kv
    if layout.replay == Replay.BOUNDED:
        yield "bounded_replay", layout.window_tokens, False
    if layout.replay != Replay.NONE:
        yield "exact_rebuild", layout.state_layers * layout.window_tokens, exact_kv


def loading(layout: Layout, mode: str, exact: bool, matched: int, start: int, held: int, with_snapshot: bool) -> Answer:
    """An answer that loads every block below ``matched`` that is not held whole."""
    blocks = [at for at in range(0, matched, layout.block_tokens) if at + layout.block_tokens > held]
    if layout.block_bytes == 0:
        blocks = []
    return Answer(
        mode,
        exact,
        matched,
        start,
        held,
        blocks[0] if blocks else matched,
        matched,
        matched if with_snapshot else None,
        len(blocks) * layout.block_bytes,
        layout.snapshot_bytes if with_snapshot else 0,
    )
