"""The simulator: the sample's known answers, what each option does, and what it costs."""

from dataclasses import replace
from random import Random

import pytest

from service.planner.base import Ability
from service.profiles import get_profile
from service.simulate.disk import disk_size
from service.simulate.options import SimulateOptions
from service.simulate.policy import policy_named
from service.simulate.result import SimulationResult
from service.simulate.simulator import simulate
from service.traces.base import Run, Trace, TraceRequest
from service.traces.generate import GeneratorSettings, generate_requests, sample_path
from service.traces.reader import read_trace
from storage.memory.slots import RECORD_OVERHEAD_BYTES
from tests.support.service import V41
from tests.support.traces import hit_tokens_of, request, trace_of

_AMPLE = SimulateOptions(global_ttl_seconds=1e9, state_ttl_seconds=1e9)
_LAYOUT = get_profile(V41).layout(64)


def run(trace: Trace, **changes: object) -> SimulationResult:
    return simulate(trace, _LAYOUT, replace(_AMPLE, **changes))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def sample() -> Trace:
    return read_trace(sample_path())


def test_the_samples_known_answers(sample: Trace) -> None:
    """Figures that a trie and a plain simulation came to. The seed is fixed, so they are."""
    result = run(sample)
    assert (result.requests, result.prompt_tokens, result.hit_tokens) == (312, 6_877_348, 6_073_664)
    assert result.hit_tokens == hit_tokens_of(sample)
    assert round(result.token_hit_rate, 4) == 0.8831
    assert result.tokens_by_source.total() == result.prompt_tokens
    assert result.resumes["cold"] == 3
    blocks = len({(one.scope, block) for one in sample.requests for block in one.block_ids()})
    assert result.peak_ssd_bytes == blocks * 57_344, "a record of 56,960 bytes and its header take 14 pages"
    assert result.written_bytes == result.peak_ssd_bytes, "each was written once"


def test_a_shorter_life_of_states_makes_replays_and_never_prefill(sample: Trace) -> None:
    results = [run(sample, state_ttl_seconds=ttl) for ttl in (1.0, 60.0, 300.0, 1800.0)]
    snapshots = [result.resumes["snapshot"] for result in results]
    assert snapshots == sorted(snapshots)
    assert snapshots[0] < snapshots[-1]
    assert len({result.hit_tokens for result in results}) == 1
    assert all(result.resumes["cold"] == 3 for result in results)
    assert results[0].peak_dram_bytes < results[-1].peak_dram_bytes


def test_a_shorter_life_of_global_kv_makes_prefill(sample: Trace) -> None:
    results = [run(sample, global_ttl_seconds=ttl) for ttl in (1.0, 60.0, 600.0, 3600.0)]
    hits = [result.hit_tokens for result in results]
    assert hits == sorted(hits)
    assert hits[0] < hits[-1]
    assert results[0].peak_ssd_bytes < results[-1].peak_ssd_bytes


def test_exact_only_replays_nothing(sample: Trace) -> None:
    result = run(sample, exact_only=True, state_ttl_seconds=300.0)
    assert result.exact_resumes == result.requests
    assert (result.resumes["bounded_replay"], result.replayed_tokens) == (0, 0)
    rebuilding = run(sample, exact_only=True, state_ttl_seconds=300.0, supports=frozenset(Ability))
    assert rebuilding.resumes["exact_rebuild"] > 0
    assert rebuilding.run_tokens < result.run_tokens


def test_an_engine_that_supports_nothing_runs_cold(sample: Trace) -> None:
    result = run(sample, supports=frozenset())
    assert result.resumes["cold"] == result.requests
    assert (result.run_tokens, result.hit_tokens) == (result.prompt_tokens, hit_tokens_of(sample))


def test_policies(sample: Trace) -> None:
    by_name = {
        name: run(sample, snapshots=policy_named(name))
        for name in ("none", "last-block", "prompt-and-turn", "every-8", "every-1")
    }
    assert by_name["none"].resumes["snapshot"] == by_name["none"].peak_dram_bytes == 0
    turn, prompt = by_name["prompt-and-turn"], by_name["last-block"]
    assert turn.hit_tokens > prompt.hit_tokens, "the answers of finished turns are hits, too"
    assert turn.run_tokens < prompt.run_tokens
    assert by_name["every-1"].resumes["snapshot"] >= by_name["every-8"].resumes["snapshot"]
    assert by_name["every-1"].peak_dram_bytes > 5 * by_name["every-8"].peak_dram_bytes > prompt.peak_dram_bytes


def test_superseding_spares_the_pool_and_costs_nothing(sample: Trace) -> None:
    kept = run(sample, supersede=False)
    superseding = run(sample)
    assert superseding.peak_dram_bytes < kept.peak_dram_bytes / 2
    assert superseding.resumes["snapshot"] <= kept.resumes["snapshot"]
    one = _LAYOUT.snapshot_bytes + RECORD_OVERHEAD_BYTES
    small = run(sample, dram_bytes=10 * one + one - 1)
    assert small.peak_dram_bytes == 10 * one
    assert small.evicted_dram_bytes > 0
    assert run(sample, dram_bytes=one - 1).resumes["snapshot"] == 0


def test_a_budget_is_kept_and_a_larger_one_hits_more(sample: Trace) -> None:
    sizes = [100 << 20, 200 << 20, 400 << 20, 2 << 30]
    results = [run(sample, ssd_bytes=size) for size in sizes]
    assert all(result.peak_ssd_bytes <= size for result, size in zip(results, sizes, strict=True))
    hits = [result.hit_tokens for result in results]
    assert hits == sorted(hits)
    assert hits[0] < hits[-1] == hit_tokens_of(sample)
    assert results[0].evicted_ssd_bytes > results[-1].evicted_ssd_bytes == 0
    assert results[0].carried_bytes > 0
    without = run(sample, ssd_bytes=sizes[0], carry_forward=False)
    assert without.carried_bytes == 0 < without.evicted_ssd_bytes


def test_written_bytes_a_day() -> None:
    """One block in half a day is two a day."""
    trace = trace_of([request([1]), request([1], time=43_200.0)])
    result = run(trace)
    assert (result.written_bytes, result.written_bytes_per_day) == (57_344, 114_688)
    assert run(trace_of([request([1])])).written_bytes_per_day == 57_344 * 86_400


@pytest.mark.parametrize(
    ("budget", "payload", "size"),
    [
        (400 << 10, 64, (10, 6, 3, 12)),
        (1 << 30, 113_920, (127, 72, 36, 1170)),
        (2 * 10**12, 113_920, (29_600, 585, 292, 2_180_000)),
    ],
)
def test_how_a_budget_is_cut(budget: int, payload: int, size: tuple[int, int, int, int]) -> None:
    found = disk_size(budget, payload)
    assert found[1:3] == size[1:3]
    assert found[0] == pytest.approx(size[0], rel=0.05)
    assert found[3] == pytest.approx(size[3], rel=0.05)


def test_a_budget_too_small_for_a_record(sample: Trace) -> None:
    with pytest.raises(ValueError, match="budget_bytes=100000 is too small"):
        run(sample, ssd_bytes=100_000)


def test_a_request_costs_its_runs_not_its_blocks() -> None:
    """600 requests of up to 6 million blocks, 1.8 thousand million block references: a second would be 5 ns a block."""
    requests = [
        TraceRequest(float(n), "a", None, "a", n * 10_000 * 64 + 1, 0, 64, (Run(1, n * 10_000),)) for n in range(1, 601)
    ]
    trace = trace_of(requests)
    result = run(trace)
    assert result.hit_tokens == sum(n * 10_000 * 64 for n in range(1, 600))
    assert result.requests == 600


def test_days_between() -> None:
    """What comes back after days is there with a week, and gone with an hour: the gaps that no public trace has."""
    requests = generate_requests(Random(4), GeneratorSettings(sessions=25, duration_seconds=7 * 86_400.0))
    trace = Trace("week", "kvshelf", 64, tuple(requests), 25, 0)
    hour, day, week = (run(trace, global_ttl_seconds=days * 86_400.0) for days in (1 / 24, 1.0, 7.0))
    assert hour.hit_tokens < day.hit_tokens < week.hit_tokens
    assert hour.peak_ssd_bytes < day.peak_ssd_bytes < week.peak_ssd_bytes
    assert hour.written_bytes > day.written_bytes > week.written_bytes
