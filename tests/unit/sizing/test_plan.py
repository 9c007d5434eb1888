"""From a session to a day: Little's law, drives, prices; and the sizes that are known of models."""

from dataclasses import replace

import pytest

from service.profiles import get_profile
from service.sizing.load import Load
from service.sizing.model import context_bytes, model_document
from service.sizing.plan import Demand, Drive, Plan
from service.sizing.prices import Prices
from service.sizing.workload import CODING_AGENT_GAPS, Gap, Workload

_DAY = 86_400.0
_LOAD = Load(
    unit="session",
    units_in_trace=10,
    duration_seconds=_DAY / 2,
    requests=5.0,
    prompt_tokens=2000.0,
    hit_tokens=1500.0,
    saved_tokens=1200.0,
    run_tokens=800.0,
    replayed_tokens=100.0,
    ssd_byte_seconds=1e9 * 3 * _DAY,
    dram_byte_seconds=1e6 * 300.0,
    written_bytes=1e9,
    stored_dram_bytes=2e6,
    loaded_ssd_bytes=4e9,
    loaded_dram_bytes=3e6,
    shared_ssd_bytes=7,
    resume_shares={"snapshot": 0.75, "bounded_replay": 0.25},
)
_PLAN = Plan.of(_LOAD, Demand(_DAY, peak_factor=2, headroom=1.5, write_factor=1.25))
"""A session a second."""


def test_littles_law() -> None:
    assert _LOAD.units_per_day == 20
    assert _PLAN.ssd_bytes == (1e9 * 3 * _DAY + 7) * 1.5
    assert _PLAN.dram_bytes == 1e6 * 300 * 2
    assert _PLAN.written_bytes_per_day == 1e9 * _DAY * 1.25
    assert (_PLAN.peak_ssd_read, _PLAN.peak_ssd_write) == (8e9, 2.5e9)
    assert (_PLAN.peak_dram_read, _PLAN.peak_dram_write) == (6e6, 4e6)
    document = _PLAN.document()
    assert (document["sessions_per_day"], document["requests_per_day"]) == (_DAY, 5 * _DAY)
    assert (document["bounded_replay_share"], document["token_hit_rate"]) == (0.25, 0.75)
    assert document["drives"] is None


def test_drives() -> None:
    """Ten terabytes on drives of four, ten terabytes a day: three drives, rated for a write a day over five years."""
    load = replace(_LOAD, ssd_byte_seconds=10e12 * _DAY, written_bytes=10e12, shared_ssd_bytes=0)
    demand = Demand(1, headroom=1, write_factor=1, drive=Drive.rated(4e12, 1, 5))
    drives = Plan.of(load, demand).drives()
    assert drives is not None
    assert drives["count"] == 3
    assert drives["drive_writes_per_day"] == pytest.approx(10 / 12)
    assert drives["endurance_years"] == pytest.approx(6.0)
    half = Plan.of(load, replace(demand, drive=Drive(4e12, 4e12 * 365.25))).drives()
    assert half is not None
    assert half["endurance_years"] == pytest.approx(1.2)


def test_a_drive_that_nothing_is_written_to() -> None:
    load = replace(_LOAD, ssd_byte_seconds=0.0, written_bytes=0.0, shared_ssd_bytes=0)
    document = Plan.of(load, Demand(1, drive=Drive(1e12, 1e15))).document()
    assert document["drives"] == {"count": 1, "capacity_bytes": 1e12, "drive_writes_per_day": 0.0}


def test_prices() -> None:
    """36 an hour at 10,000 tokens a second is a miss at 1 a million; the shelves cost 0.2 a day, replays 0.01."""
    load = replace(_LOAD, saved_tokens=1e6, replayed_tokens=1e4, shared_ssd_bytes=0)
    demand = Demand(1, peak_factor=1, headroom=1)
    load = replace(load, ssd_byte_seconds=1e12 * _DAY, dram_byte_seconds=1e9 * _DAY)
    month = 365.25 / 12
    prices = Prices(36.0, 10_000.0, ssd_tb_month=month * 0.15, dram_gb_month=month * 0.05)
    costs = prices.document(Plan.of(load, demand))
    assert costs["miss_per_million_tokens"] == pytest.approx(1.0)
    assert costs["shelves_per_day"] == pytest.approx(0.2)
    assert costs["replay_per_day"] == pytest.approx(0.01)
    assert costs["hit_per_million_tokens"] == pytest.approx(0.21 / 1.01)
    assert costs["hit_share_of_miss"] == pytest.approx(0.21 / 1.01)
    assert costs["saved_per_day"] == pytest.approx(1.0 - 0.2)


def test_prices_of_nothing() -> None:
    nobody = Plan.of(replace(_LOAD, saved_tokens=0.0, replayed_tokens=0.0), Demand(1))
    assert Prices(1.0, 1.0, 1.0, 1.0).document(nobody)["hit_per_million_tokens"] is None
    assert Prices(0.0, 1.0, 1.0, 1.0).document(_PLAN)["hit_share_of_miss"] is None


@pytest.mark.parametrize(
    ("profile", "tokens", "gib"),
    [("deepseek-v1-67b/bf16", 131_072, 47.5), ("deepseek-v1-67b/bf16", 1_048_576, 380.0)],
)
def test_contexts_of_389_120_bytes_a_token(profile: str, tokens: int, gib: float) -> None:
    layout = get_profile(profile).layout(128)
    assert layout.block_bytes == 389_120 * 128
    assert context_bytes(layout, tokens) == gib * 2**30
    assert model_document(layout)["context_gib"] == {"131072": 47.5, "1048576": 380.0}


def test_v41() -> None:
    document = model_document(get_profile("deepseek-v4.1-flash/fp4").layout(128))
    assert document["global_bytes_per_token"] == 890
    ratio = document["snapshots_at_every_block_by_global"]
    assert isinstance(ratio, float)
    assert round(ratio, 1) == 11.9


def test_a_model_without_global_kv_or_without_state() -> None:
    assert model_document(get_profile("mistral-7b-v0.1/bf16").layout(128))["snapshots_at_every_block_by_global"] is None
    assert model_document(get_profile("llama-3-8b/bf16").layout(128))["snapshots_at_every_block_by_global"] is None


def test_a_workload_is_what_its_numbers_say() -> None:
    workload = Workload(
        864, turns=4, first_tokens=1000, shared_tokens=500, turn_tokens=300, answer_tokens=50, gaps=[Gap(5, 1)]
    )
    trace = workload.trace(128)
    assert (trace.sessions, trace.block_tokens, len(trace.requests)) == (300, 128, 1200)
    last = [one for one in trace.requests if one.session == "session-300"]
    assert [one.input_tokens for one in last] == [1000, 1300, 1600, 1900]
    assert workload.last_tokens == 1900
    assert [one.time_seconds for one in last] == [29_900.0, 29_905.0, 29_910.0, 29_915.0]
    assert all(one.output_tokens == 50 and one.full_blocks == sum(run.length for run in one.runs) for one in last)
    firsts = [next(one for one in trace.requests if one.session == name) for name in ("session-1", "session-2")]
    assert firsts[0].runs[0] == firsts[1].runs[0] == (0, 3)
    assert firsts[0].runs[1] != firsts[1].runs[1]
    assert len(Workload(1, turns=2_000).trace(128).requests) == 20 * 2_000


def test_gaps_come_as_often_as_they_should() -> None:
    requests = Workload(1000, turns=40).trace(128).requests
    times: dict[str | None, float] = {}
    waits: list[float] = []
    for one in requests:
        if one.session in times:
            waits.append(one.time_seconds - times[one.session])
        times[one.session] = one.time_seconds
    for gap in CODING_AGENT_GAPS:
        share = sum(abs(wait - gap.seconds) < 1e-3 for wait in waits) / len(waits)
        assert share == pytest.approx(gap.share, abs=0.01)


@pytest.mark.parametrize(
    "changes",
    [
        {"sessions_per_day": 0.0}, {"turns": 0}, {"first_tokens": 0}, {"turn_tokens": -1, "answer_tokens": 0},
        {"shared_tokens": 12_001}, {"shared_tokens": -1}, {"answer_tokens": 2001},
        {"gaps": []}, {"gaps": [Gap(1, 0)]}, {"gaps": [Gap(1, -1), Gap(2, 3)]},
    ],
)  # fmt: skip
def test_numbers_that_make_no_sense(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must|part"):
        replace(Workload(1), **changes)  # type: ignore[arg-type]
