"""What one session of a trace comes to on shelves without budgets: the unit that a plan scales."""

from dataclasses import dataclass

from service.planner.base import Layout
from service.simulate.options import SimulateOptions
from service.simulate.simulator import simulate
from service.traces.base import Trace
from service.traces.prefixes import PrefixTree
from storage.ssd.format import padded_bytes


@dataclass(frozen=True, slots=True)
class Load:
    """Averages of a session; of a request where the trace knows no sessions.

    Byte-seconds are what a session keeps on a shelf, over time, until the last of it has expired. What several sessions
    share is on the disk once, whatever their number: it is in ``shared_ssd_bytes`` and in no average.
    """

    unit: str
    units_in_trace: int
    duration_seconds: float
    requests: float
    prompt_tokens: float
    hit_tokens: float
    saved_tokens: float
    run_tokens: float
    replayed_tokens: float
    ssd_byte_seconds: float
    dram_byte_seconds: float
    written_bytes: float
    stored_dram_bytes: float
    loaded_ssd_bytes: float
    loaded_dram_bytes: float
    shared_ssd_bytes: int
    resume_shares: dict[str, float]

    @property
    def units_per_day(self) -> float:
        """The trace's own rate; a trace of one moment counts as a second."""
        return self.units_in_trace / max(self.duration_seconds, 1.0) * 86_400.0


def load_of(trace: Trace, layout: Layout, options: SimulateOptions) -> Load:
    """Simulate a trace without budgets, and take averages.

    Raises:
        ValueError: the options have a budget.
    """
    if options.ssd_bytes is not None or options.dram_bytes is not None:
        raise ValueError("what is needed is measured without budgets")
    result = simulate(trace, layout, options)
    units = trace.sessions or len(trace.requests)
    shared, shared_seconds = _shared(trace, options.global_ttl_seconds) if layout.block_bytes else (0, 0.0)
    record = padded_bytes(layout.block_bytes)
    return Load(
        unit="session" if trace.sessions else "request",
        units_in_trace=units,
        duration_seconds=trace.duration_seconds,
        requests=result.requests / units,
        prompt_tokens=result.prompt_tokens / units,
        hit_tokens=result.hit_tokens / units,
        saved_tokens=result.saved_tokens / units,
        run_tokens=result.run_tokens / units,
        replayed_tokens=result.replayed_tokens / units,
        ssd_byte_seconds=max(0.0, result.ssd_byte_seconds - shared_seconds * record) / units,
        dram_byte_seconds=result.dram_byte_seconds / units,
        written_bytes=max(0, result.written_bytes - shared * record) / units,
        stored_dram_bytes=result.stored_dram_bytes / units,
        loaded_ssd_bytes=result.loaded_ssd_bytes / units,
        loaded_dram_bytes=result.loaded_dram_bytes / units,
        shared_ssd_bytes=shared * record,
        resume_shares={mode: count / result.requests for mode, count in result.resumes.items()},
    )


@dataclass(slots=True)
class _Stretch:
    """Blocks that a session used: how many, from when to when, and whether another session used them, too."""

    session: str | None
    blocks: int
    first_seconds: float
    last_seconds: float
    is_shared: bool = False


def _shared(trace: Trace, ttl_seconds: float) -> tuple[int, float]:
    """The blocks that several sessions use, and the seconds they live; none where nobody shares ids or sessions.

    Once all prompts are in a prefix tree, each of its nodes is of one session or of several as a whole.
    """
    if not trace.sessions or trace.requests[0].scope is not None:
        return 0, 0.0
    tree, stretches = PrefixTree(), dict[int, _Stretch]()
    for request in trace.requests:
        tree.path(None, request.runs)
    for request in trace.requests:
        now = request.time_seconds
        for place, blocks in tree.path(None, request.runs):
            stretch = stretches.setdefault(place, _Stretch(request.session, 0, now, now))
            stretch.is_shared |= stretch.session != request.session
            stretch.blocks, stretch.last_seconds = max(stretch.blocks, blocks), now
    shared = [stretch for stretch in stretches.values() if stretch.is_shared]
    seconds = sum(one.blocks * (one.last_seconds - one.first_seconds + ttl_seconds) for one in shared)
    return sum(one.blocks for one in shared), seconds
