"""A simulation is what a plain one, block by block, comes to: on random traces, under any budgets and policies."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from service.planner.base import Ability
from service.profiles import get_profile
from service.simulate.disk import disk_size
from service.simulate.options import SimulateOptions
from service.simulate.policy import policy_named
from service.simulate.simulator import simulate
from service.traces.base import Run, Trace, TraceRequest, runs_of
from storage.memory.slots import RECORD_OVERHEAD_BYTES
from storage.ssd.format import padded_bytes
from tests.property.simulate_oracle import PlainSimulation
from tests.support.traces import trace_of

_BLOCK = 64
_PROFILES = ["deepseek-v4.1-flash/fp4", "llama-3-8b/bf16", "mistral-7b-v0.1/bf16", "gpt-oss-20b/bf16"]
_BUDGETS = [None, 400 << 10, 512 << 10, 1 << 20]


@st.composite
def requests(draw: st.DrawFn) -> list[TraceRequest]:
    """Prompts that go on from earlier ones, fork from them or start anew, in a few sessions or in none."""
    prompts: dict[tuple[str | None, str | None], list[list[int]]] = {}
    made: list[TraceRequest] = []
    time = 0.0
    choices: list[list[str | None]] = [["a", "b", "c"], [None], ["a"]]
    sessions = draw(st.sampled_from(choices))
    shares_ids = draw(st.booleans())
    for _ in range(draw(st.integers(1, 25))):
        time += draw(st.sampled_from([0.0, 0.0, 1.0, 10.0, 100.0, 400.0]))
        session = draw(st.sampled_from(sessions))
        agent = draw(st.sampled_from([None, None, "x"])) if session else None
        lines = prompts.setdefault((session, agent), [[]])
        ids = list(draw(st.sampled_from(lines[-2:])))
        if draw(st.integers(0, 4)) == 0:
            ids = ids[: draw(st.integers(0, len(ids)))]
        start, more = draw(st.sampled_from([0, len(ids), 30, 500, 1000 * len(made)])), draw(st.integers(0, 40))
        ids += range(start, start + more)
        lines.append(ids)
        scope = session if not shares_ids else None
        tokens = len(ids) * _BLOCK + draw(st.integers(0 if ids else 1, _BLOCK - 1))
        made.append(
            TraceRequest(time, session, agent, scope, tokens, draw(st.integers(0, 300)), _BLOCK, _cut(draw, ids))
        )
    return made


def _cut(draw: st.DrawFn, ids: Sequence[int]) -> tuple[Run, ...]:
    """The ids as runs, at times cut where they need not be."""
    at = draw(st.integers(0, len(ids)))
    return tuple(runs_of(ids[:at]) + runs_of(ids[at:]))


_OPTIONS = st.builds(
    SimulateOptions,
    global_ttl_seconds=st.sampled_from([5.0, 150.0, 1000.0, 1e6]),
    state_ttl_seconds=st.sampled_from([5.0, 150.0, 1e6]),
    snapshots=st.sampled_from(["last-block", "prompt-and-turn", "every-1", "every-3", "none"]).map(policy_named),
    supersede=st.booleans(),
    carry_forward=st.sampled_from([True, True, False]),
    exact_only=st.booleans(),
    ssd_bytes=st.sampled_from(_BUDGETS),
    dram_bytes=st.sampled_from([None, 0, 4_000, 20_000, 100_000]),
    supports=st.sampled_from([None, frozenset(Ability), frozenset({Ability.SNAPSHOT}), frozenset[Ability]()]),
)


def check(trace: Trace, profile: str, options: SimulateOptions) -> PlainSimulation:
    """Play the trace both ways and compare all there is."""
    layout = get_profile(profile).miniature(1).layout(_BLOCK)
    cost = layout.snapshot_bytes + RECORD_OVERHEAD_BYTES
    limit = None if options.dram_bytes is None else options.dram_bytes // cost
    size = disk_size(options.ssd_bytes, layout.block_bytes) if options.ssd_bytes else None
    plain = PlainSimulation(trace, layout, options, size, limit)
    plans = []
    result = simulate(trace, layout, options, lambda _, plan: plans.append(plan))
    assert plans == plain.plans
    if layout.block_bytes:
        assert result.hit_tokens == sum(plain.hit_tokens)
    disk, pool, record = plain.disk, plain.pool, padded_bytes(layout.block_bytes)
    assert result.stored_bytes == disk.stored * layout.block_bytes + pool.stored * layout.snapshot_bytes
    assert result.written_bytes == (disk.stored + disk.carried) * record
    assert (result.peak_ssd_bytes, result.peak_dram_bytes) == (disk.peak * record, pool.peak * cost)
    assert result.evicted_ssd_bytes == disk.evicted * layout.block_bytes
    assert result.evicted_dram_bytes == pool.evicted * layout.snapshot_bytes
    assert sum(result.tokens_by_source.values()) == result.prompt_tokens == trace.input_tokens
    assert result.run_tokens + result.saved_tokens == result.prompt_tokens
    assert result.resumes == Counter(dict.fromkeys(result.resumes, 0)) | Counter(plan.mode.value for plan in plans)
    return plain


@settings(max_examples=100, deadline=None)
@given(requests(), st.sampled_from(_PROFILES), _OPTIONS)
def test_any_trace_under_any_options(made: list[TraceRequest], profile: str, options: SimulateOptions) -> None:
    check(trace_of(made), profile, options)


def test_everything_that_can_happen_is_among_the_random_traces() -> None:
    """The comparison above means something: budgets evict, carry and refuse, snapshots are evicted and superseded."""
    seen: Counter[str] = Counter()

    @settings(max_examples=60, deadline=None, database=None, derandomize=True)
    @given(requests(), st.sampled_from([_PROFILES[0], "gpt-oss-20b/bf16"]), _OPTIONS)
    def look(made: list[TraceRequest], profile: str, options: SimulateOptions) -> None:
        plain = check(trace_of(made), profile, options)
        disk, pool = plain.disk, plain.pool
        happened = {"evicted": disk.evicted, "carried": disk.carried, "refused": disk.refused, "lru": pool.evicted}
        seen.update(word for word, count in happened.items() if count)
        seen.update(plan.mode.value for plan in plain.plans)
        seen.update(f"exact {plan.exact}" for plan in plain.plans)

    look()
    expected = {"evicted", "carried", "refused", "lru", "snapshot", "bounded_replay", "exact_rebuild", "cold"}
    assert seen.keys() >= expected | {"exact True", "exact False"}
