"""Every way a request could resume, before anybody asks which is allowed and which is best.

Each way comes in two variants: one stands on exact KV alone, the other on whatever is there (:class:`Basis`).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kvshelf_client.words import Provenance
from service.planner.base import Cached, Layout, Load, Mode, Replay, Request, ResumePlan, Snapshot


def cap_tokens(layout: Layout, request: Request) -> int:
    """How much of the prompt may be skipped at most; negative where the prompt is shorter than the decoder's window.

    One token must run to get logits. A decoder needs the encoder's outputs of its whole window, which nobody keeps.
    """
    return request.prompt_tokens - max(1, layout.decoder_window_tokens)


def highest_boundary(layout: Layout, request: Request, global_tokens: int) -> int:
    """H: the last boundary at which ``global_tokens`` of global KV are of use, 0 where none is."""
    return max(0, layout.floor_to_block(min(global_tokens, cap_tokens(layout, request))))


def candidates(layout: Layout, request: Request, cached: Cached) -> Iterator[ResumePlan]:
    """Every plan that some constraint could make the best one; which constraints there are is the caller's matter.

    Args:
        layout: the model's, at the namespace's block size.
        request: the engine's.
        cached: as :func:`~service.planner.validate.counted` made it.
    """
    exact = Basis(layout, request, True, request.hbm_exact_tokens, cached.exact_global_tokens)
    anything = Basis(layout, request, False, request.hbm_tokens, cached.global_tokens)
    for basis in (exact, anything):
        yield from (plan for plan in basis.resuming(cached.snapshots) if plan.run_start > 0)
    yield exact.plan(Mode.COLD, 0, 0)


@dataclass(frozen=True, slots=True)
class Basis:
    """What plans of one variant may stand on: what the engine holds, and what is stored from there on."""

    layout: Layout
    request: Request
    exact: bool
    held_tokens: int
    global_tokens: int

    def resuming(self, snapshots: Iterable[Snapshot]) -> Iterator[ResumePlan]:
        """The variant's plans that skip something; ``run_start`` may come out at 0 or below, which skips nothing."""
        yield from self._resident()
        if not self.layout.state_layers:
            yield self._loading(Mode.FULL_ATTENTION, 0)
            return
        for snapshot in snapshots:
            if snapshot.boundary_tokens <= self._top and (snapshot.provenance is Provenance.EXACT or not self.exact):
                yield self.plan(Mode.SNAPSHOT, snapshot.boundary_tokens, snapshot.boundary_tokens)
        if self.layout.replay is Replay.BOUNDED and not self.exact:
            yield self._loading(Mode.BOUNDED_REPLAY, self.layout.window_tokens)
        if self.layout.replay is not Replay.NONE:
            yield self._loading(Mode.EXACT_REBUILD, self.layout.state_layers * self.layout.window_tokens)

    def plan(self, mode: Mode, matched: int, run_start: int) -> ResumePlan:
        """A plan of this variant. It loads all blocks below ``matched`` but those held whole; a resident one, none."""
        layout, prompt_tokens = self.layout, self.request.prompt_tokens
        is_loading = mode is not Mode.RESIDENT and layout.block_bytes > 0
        load_start = self._first_unheld(matched) if is_loading else matched
        has_snapshot = mode is Mode.SNAPSHOT
        return ResumePlan(
            mode=mode,
            exact=self.exact,
            prompt_tokens=prompt_tokens,
            matched_tokens=matched,
            run_start=run_start,
            decoder_run_start=max(0, prompt_tokens - layout.decoder_window_tokens),
            held_tokens=self.held_tokens,
            load=Load(
                global_start=load_start,
                global_end=matched,
                snapshot_boundary=matched if has_snapshot else None,
                ssd_bytes=self._block_bytes(load_start, matched),
                dram_bytes=layout.snapshot_bytes if has_snapshot else 0,
            ),
        )

    @property
    def _top(self) -> int:
        return highest_boundary(self.layout, self.request, self.global_tokens)

    def _first_unheld(self, end: int) -> int:
        """Where loading up to ``end`` starts: at the first block that the engine does not hold whole."""
        return self.layout.floor_to_block(min(self.held_tokens, end))

    def _block_bytes(self, start: int, end: int) -> int:
        return (end - start) // self.layout.block_tokens * self.layout.block_bytes

    def _resident(self) -> Iterator[ResumePlan]:
        """Go on in the engine's own KV, which must hold the state at its very end where there is state."""
        held, cap = self.held_tokens, cap_tokens(self.layout, self.request)
        has_state = self.request.hbm_state and held == self.request.hbm_tokens and held <= cap
        if has_state or not self.layout.state_layers:
            skipped = min(held, cap)
            yield self.plan(Mode.RESIDENT, skipped, skipped)

    def _loading(self, mode: Mode, replay_tokens: int) -> ResumePlan:
        """Load up to the highest boundary within the caller's limit and run the ``replay_tokens`` before it again."""
        boundary = self._affordable_boundary(replay_tokens)
        return self.plan(mode, boundary, boundary - replay_tokens)

    def _affordable_boundary(self, replay_tokens: int) -> int:
        """The highest boundary whose load costs no more bytes a saved token than the caller's limit.

        The cost at boundary b is ``k (b - first) / (b - replay_tokens)``, with k the bytes of a token and ``first``
        where loading starts. If something held is saved (``first > replay_tokens``), it costs nothing at ``first`` and
        rises from there, so a binary search finds the last boundary within the limit. Otherwise it falls all the way:
        only the highest boundary is worth a look, and if that is too dear the plan is dropped later.
        """
        top, limit = self._top, self.request.max_load_bytes_per_saved_token
        first = self._first_unheld(top)
        if limit is None or first <= replay_tokens:
            return top

        def cost(boundary: int) -> float:
            return self._block_bytes(first, boundary) / (boundary - replay_tokens)

        boundaries = range(first, top + 1, self.layout.block_tokens)
        return boundaries[bisect_right(boundaries, limit, key=cost) - 1]
