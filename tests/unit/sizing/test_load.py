"""What a session comes to: closed forms, and a steady state that is simulated to the end."""

from dataclasses import replace

import pytest

from service.profiles import get_profile
from service.simulate.options import SimulateOptions
from service.simulate.policy import NONE
from service.simulate.simulator import simulate
from service.sizing.load import Load, load_of
from service.sizing.plan import Demand, Plan
from service.sizing.workload import Gap, Workload
from service.traces.generate import sample_path
from service.traces.reader import read_trace
from storage.memory.slots import RECORD_OVERHEAD_BYTES
from tests.support.service import V41
from tests.support.traces import request, trace_of

_LAYOUT = get_profile(V41).layout(64)
_RECORD, _SNAPSHOT = 57_344, _LAYOUT.snapshot_bytes + RECORD_OVERHEAD_BYTES
_OPTIONS = SimulateOptions(global_ttl_seconds=1000.0, state_ttl_seconds=100.0)


def load(*times: float, blocks: int = 10) -> Load:
    """A session whose every prompt has ``blocks`` blocks more than the one before."""
    made = [request(range(blocks * (n + 1)), time=time) for n, time in enumerate(times)]
    return load_of(trace_of(made), _LAYOUT, _OPTIONS)


def test_one_request() -> None:
    found = load(0.0)
    assert (found.unit, found.requests, found.prompt_tokens) == ("session", 1, 641)
    assert found.ssd_byte_seconds == 10 * _RECORD * 1000
    assert found.dram_byte_seconds == _SNAPSHOT * 100
    assert found.written_bytes == 10 * _RECORD
    assert (found.loaded_ssd_bytes, found.shared_ssd_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("gap", "first", "snapshots"),
    [
        (50.0, 1050, 50 + 100 + 100),
        (500.0, 1500, 100 + 100),
    ],
)
def test_a_second_request_renews_what_it_uses(gap: float, first: float, snapshots: float) -> None:
    """After 50 s the snapshot is there and renewed, after 500 s the global KV alone is."""
    found = load(0.0, gap)
    assert found.ssd_byte_seconds == pytest.approx(10 * _RECORD * (first + 1000))
    assert found.dram_byte_seconds == pytest.approx(_SNAPSHOT * snapshots)


def test_what_has_expired_is_stored_again() -> None:
    found = load(0.0, 2000.0)
    assert found.ssd_byte_seconds == pytest.approx(10 * _RECORD * (1000 + 2 * 1000))
    assert found.written_bytes == 30 * _RECORD
    assert found.resume_shares["cold"] == 1


def test_a_superseded_snapshot_goes_when_the_next_is_used() -> None:
    """Stored at 0, 50 and 100 s; the first goes at 100, the second is renewed then and the third is never used."""
    assert load(0.0, 50.0, 100.0).dram_byte_seconds == pytest.approx(_SNAPSHOT * (100 + (50 + 100) + 100))


def test_what_sessions_share_is_there_once() -> None:
    ids = [[*range(20), *range(1000 * n, 1000 * n + 5)] for n in range(1, 5)]
    made = [replace(request(one, time=10.0 * n, session=f"s{n}"), scope=None) for n, one in enumerate(ids)]
    found = load_of(trace_of(made), _LAYOUT, _OPTIONS)
    assert found.shared_ssd_bytes == 20 * _RECORD
    assert found.ssd_byte_seconds == pytest.approx(5 * _RECORD * 1000)
    assert found.written_bytes == 5 * _RECORD


def test_a_trace_without_sessions_is_counted_by_request() -> None:
    trace = replace(trace_of([request([1], session=None), request([2], session=None)]), sessions=0)
    found = load_of(trace, _LAYOUT, _OPTIONS)
    assert (found.unit, found.units_in_trace, found.requests) == ("request", 2, 1)
    assert found.ssd_byte_seconds == _RECORD * 1000


def test_budgets_are_refused() -> None:
    with pytest.raises(ValueError, match="without budgets"):
        load_of(trace_of([request([1])]), _LAYOUT, replace(_OPTIONS, ssd_bytes=1 << 30))


@pytest.mark.parametrize("profile", [V41, "llama-3-8b/bf16", "mistral-7b-v0.1/bf16"])
def test_a_plan_is_the_steady_state_of_a_simulation(profile: str) -> None:
    """300 sessions, one every 36 s, on shelves of twelve minutes and one minute: long enough to be full."""
    workload = Workload(2400, turns=6, first_tokens=5000, shared_tokens=2000, turn_tokens=1000, gaps=[Gap(30, 1)])
    layout = get_profile(profile).layout(64)
    options = SimulateOptions(global_ttl_seconds=720.0, state_ttl_seconds=60.0)
    trace = workload.trace(64)
    plan = Plan.of(load_of(trace, layout, options), Demand(2400, peak_factor=1, headroom=1, write_factor=1))
    result = simulate(trace, layout, options)
    assert plan.ssd_bytes == pytest.approx(result.peak_ssd_bytes, rel=0.03)
    assert plan.dram_bytes == pytest.approx(result.peak_dram_bytes, rel=0.05 if layout.state_layers else 0)
    assert plan.written_bytes_per_day == pytest.approx(result.written_bytes_per_day, rel=0.03)


def test_the_samples_shared_openings_are_found() -> None:
    found = load_of(read_trace(sample_path()), _LAYOUT, SimulateOptions())
    assert 3 * 8_200 / 64 * _RECORD * 0.9 < found.shared_ssd_bytes < 3 * 16_200 / 64 * _RECORD


def test_a_policy_without_snapshots_needs_no_pool() -> None:
    found = load_of(trace_of([request([1])]), _LAYOUT, replace(_OPTIONS, snapshots=NONE))
    assert found.dram_byte_seconds == found.stored_dram_bytes == 0
