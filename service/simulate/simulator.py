"""Play a trace on a virtual clock: for each request ask the planner, load, store what a run would have computed.

A request takes no time: all that it does happens at its time in the trace, in the order in which ``kvshelf replay``
does it. It costs work in proportion to its runs and to the extents that its prompt is stored in, not to its blocks.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from kvshelf_client.words import Provenance
from service.planner import request_for, resume_plan, useful_snapshot_boundaries
from service.planner.base import Cached, Layout, ResumePlan, Snapshot
from service.simulate.disk import UNBOUNDED, Disk, Use, disk_size
from service.simulate.extents import Segment
from service.simulate.options import SimulateOptions
from service.simulate.policy import Turns
from service.simulate.pool import Pool
from service.simulate.result import SimulationResult
from service.traces.base import Trace, TraceRequest
from service.traces.prefixes import PrefixTree, Span, blocks_in, cut_spans, place_of
from storage.memory.slots import RECORD_OVERHEAD_BYTES
from storage.ssd.format import padded_bytes


def simulate(
    trace: Trace,
    layout: Layout,
    options: SimulateOptions,
    on_progress: Callable[[TraceRequest, ResumePlan], None] | None = None,
) -> SimulationResult:
    """Play a trace to its end; ``on_progress`` is told each request's plan.

    Raises:
        ValueError: a budget is too small for a record.
    """
    simulator = _Simulator(trace, layout, options)
    for number, request in enumerate(trace.requests):
        plan = simulator.play(number, request)
        if on_progress:
            on_progress(request, plan)
    return simulator.result()


class _Simulator:
    def __init__(self, trace: Trace, layout: Layout, options: SimulateOptions) -> None:
        self._trace, self._layout, self._options = trace, layout, options
        size = UNBOUNDED if options.ssd_bytes is None else disk_size(options.ssd_bytes, layout.block_bytes)
        self._disk = Disk(size, options.global_ttl_seconds, is_carrying=options.carry_forward)
        self._snapshot_cost = layout.snapshot_bytes + RECORD_OVERHEAD_BYTES
        limit = None if options.dram_bytes is None else options.dram_bytes // self._snapshot_cost
        self._pool = Pool(options.state_ttl_seconds, limit)
        self._tree = PrefixTree()
        self._turns = Turns(trace) if options.snapshots.at_turn_end else None
        self._previous: dict[tuple[str | None, str | None, bool], int] = {}
        self._left = Counter(request.session for request in trace.requests)
        self._result = SimulationResult(duration_seconds=trace.duration_seconds)

    def play(self, number: int, request: TraceRequest) -> ResumePlan:
        """One request, from its plan to the renewal of what it used."""
        use = Use(number, request.time_seconds)
        self._disk.expire(use.time_seconds)
        self._pool.expire(use.time_seconds)
        path = self._tree.path(request.scope, request.runs)
        plan = self._plan(request, path)
        run = _Run(request, plan, self._load(path, plan, use), self._held(path, plan), use)
        self._store(run, path)
        if self._turns is not None:
            self._store_turn(run, self._tree.path(request.scope, self._turns.runs(number)))
        self._disk.use(cut_spans(path, 0, self._blocks(plan.matched_tokens)), use)
        self._forget_if_over(request)
        return plan

    def result(self) -> SimulationResult:
        """What came of the requests run so far.

        Bytes stored, refused and evicted are of payloads; all others are as the tiers lay them out, padding included.
        """
        layout, result = self._layout, self._result
        disk, pool = self._disk.counts, self._pool.counts
        record_bytes = padded_bytes(layout.block_bytes)
        result.stored_ssd_bytes = disk.stored * layout.block_bytes
        result.stored_dram_bytes = pool.stored * layout.snapshot_bytes
        result.refused_bytes = disk.refused * layout.block_bytes + pool.refused * layout.snapshot_bytes
        result.peak_ssd_bytes, result.peak_dram_bytes = disk.peak * record_bytes, pool.peak * self._snapshot_cost
        result.ssd_byte_seconds = (disk.lived_seconds + self._disk.left_seconds()) * record_bytes
        result.dram_byte_seconds = (pool.lived_seconds + self._pool.left_seconds()) * self._snapshot_cost
        result.evicted_ssd_bytes = disk.evicted * layout.block_bytes
        result.evicted_dram_bytes = pool.evicted * layout.snapshot_bytes
        result.carried_bytes = disk.carried * record_bytes
        result.written_bytes = (disk.stored + disk.carried) * record_bytes
        return result

    def _blocks(self, tokens: int) -> int:
        return tokens // self._layout.block_tokens

    def _plan(self, request: TraceRequest, path: Sequence[Span]) -> ResumePlan:
        layout, options = self._layout, self._options
        asked = request_for(
            layout,
            request.input_tokens,
            allow_approximate=False if options.exact_only else None,
            supports=options.supports,
        )
        blocks, exact_blocks = self._disk.reach(path) if layout.block_bytes else (request.full_blocks,) * 2
        cached = Cached(blocks * layout.block_tokens, exact_blocks * layout.block_tokens)
        boundaries = useful_snapshot_boundaries(layout, asked, cached)
        found = None
        if boundaries:
            low, high = self._blocks(boundaries[0]), self._blocks(boundaries[-1])
            found = self._pool.deepest(path, low, high, exact_only=not asked.allow_approximate)
        if found is not None:
            provenance = Provenance.EXACT if found.is_exact else Provenance.REPLAYED
            cached = replace(cached, snapshots=(Snapshot(found.blocks * layout.block_tokens, provenance),))
        plan = resume_plan(layout, asked, cached)
        self._result.finish(layout, plan, cached)
        return plan

    def _load(self, path: Sequence[Span], plan: ResumePlan, use: Use) -> int | None:
        """The place of the snapshot that is loaded and thereby used; None when none is."""
        boundary = plan.load.snapshot_boundary
        if boundary is None:
            return None
        place = place_of(path, self._blocks(boundary) - 1)
        self._pool.use(place, use)
        return place

    def _held(self, path: Sequence[Span], plan: ResumePlan) -> Collection[Segment]:
        """The segments that the request's lease holds."""
        loaded = cut_spans(path, self._blocks(plan.load.global_start), self._blocks(plan.load.global_end))
        return self._disk.segments_of(loaded)

    def _store(self, run: "_Run", path: Sequence[Span]) -> None:
        """What the run computed: blocks above the write floor, and the policy's snapshots."""
        floor, blocks = self._blocks(run.plan.write_floor), run.request.full_blocks
        self._store_blocks(run, cut_spans(path, floor, blocks))
        for boundary in self._options.snapshots.boundaries(floor, blocks):
            self._store_snapshot(run, path, boundary)

    def _store_turn(self, run: "_Run", path: Sequence[Span]) -> None:
        """The blocks that the answer filled, and the snapshot at their end; ``path`` is of prompt and answer."""
        blocks = blocks_in(path)
        self._store_blocks(run, cut_spans(path, run.request.full_blocks, blocks))
        if blocks > run.request.full_blocks:
            self._store_snapshot(run, path, blocks, is_turn=True)

    def _store_blocks(self, run: "_Run", path: Sequence[Span]) -> None:
        if self._layout.block_bytes:
            self._disk.store(path, run.use, is_exact=run.plan.exact, pinned=run.held)

    def _store_snapshot(self, run: "_Run", path: Sequence[Span], blocks: int, *, is_turn: bool = False) -> None:
        """Store the state behind so many blocks, unless it is what was loaded, in place of the line's previous one."""
        place = place_of(path, blocks - 1)
        if not self._layout.state_layers or place == run.loaded:
            return
        line = (*run.request.line, is_turn)
        is_superseding = self._options.supersede and run.request.session is not None
        previous = self._previous.get(line) if is_superseding and not self._options.snapshots.every_blocks else None
        supersedes = previous if previous != place else None
        if self._pool.store(place, run.use, is_exact=run.plan.exact, supersedes=supersedes, held=run.loaded):
            self._previous[line] = place

    def _forget_if_over(self, request: TraceRequest) -> None:
        """Let go of what only a session's further requests would need, after its last one."""
        self._left[request.session] -= 1
        if self._left[request.session]:
            return
        if request.scope is not None:
            self._tree.forget(request.scope)
        for line in [line for line in self._previous if line[0] == request.session]:
            del self._previous[line]


class _Run(NamedTuple):
    """A request under way: its plan, the place of the snapshot it has loaded, and the segments it holds."""

    request: TraceRequest
    plan: ResumePlan
    loaded: int | None
    held: Collection[Segment]
    use: Use
