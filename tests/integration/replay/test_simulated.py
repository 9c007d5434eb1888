"""A simulation says what a real replay then does: to the token, and to the way each request resumes."""

from pathlib import Path

import pytest

from kvshelf_client.client import Client
from service.profiles import get_profile
from service.replay.replayer import ReplayOptions
from service.replay.tally import Tally
from service.shelf.upkeep import upkeep_step
from service.simulate.options import SimulateOptions
from service.simulate.result import SimulationResult
from service.simulate.simulator import simulate
from service.traces.base import Trace
from service.traces.generate import GeneratorSettings, sample_path, trace_bytes, write_trace
from service.traces.reader import read_trace
from storage.clock import ManualClock
from storage.ssd import SsdTier
from tests.support.live import live
from tests.support.service import V41, make_parts
from tests.support.stage import Stage

_SAME = (
    "requests", "prompt_tokens", "hit_tokens", "exact_hit_tokens", "token_hit_rate", "matched_tokens",
    "tokens_by_source", "resumes", "exact_resumes", "replayed_tokens", "stored_bytes",
)  # fmt: skip


@pytest.fixture
def short_sessions(tmp_path: Path) -> Trace:
    """The generator's: few turns, with breaks, sub-agents and compaction all the same."""
    path = tmp_path / "short.jsonl"
    write_trace(path, trace_bytes(2, GeneratorSettings(sessions=5, turns=(2, 12))))
    return read_trace(path)


def play(trace: Trace, profile: str, **options: float) -> SimulationResult:
    """Simulate records of a byte a token."""
    layout = get_profile(profile).miniature(1).layout(trace.block_tokens)
    return simulate(trace, layout, SimulateOptions(**options))  # type: ignore[arg-type]


def compare(tally: Tally, result: SimulationResult) -> None:
    """All that both of them count."""
    replayed, simulated = tally.document(), result.document()
    assert {key: simulated[key] for key in _SAME} == {key: replayed[key] for key in _SAME}
    assert result.loaded_bytes == tally.fetched_bytes
    assert (tally.misses, tally.fallbacks) == ({}, 0)


def test_the_sample_at_its_own_pace(stage: Stage) -> None:
    """States live five minutes and global KV outlives the trace: every resume mode is as simulated."""
    trace = read_trace(sample_path(), sessions_limit=6)
    tally = stage.replayer(trace, options=ReplayOptions(speed=1.0)).run()
    compare(tally, play(trace, V41))
    assert tally.resumes["snapshot"] > 50
    assert tally.resumes["bounded_replay"] > 20


@pytest.mark.parametrize("profile", ["llama-3-8b/bf16", "gpt-oss-20b/bf16", "mistral-7b-v0.1/bf16"])
def test_other_kinds_of_models(stage: Stage, short_sessions: Trace, profile: str) -> None:
    namespace = stage.register(short_sessions, profile=profile)
    options = ReplayOptions(speed=1.0)
    compare(stage.replayer(short_sessions, namespace=namespace, options=options).run(), play(short_sessions, profile))


def test_all_at_one_moment(stage: Stage, short_sessions: Trace) -> None:
    """On a clock that stands still nothing expires."""
    compare(stage.replayer(short_sessions).run(), play(short_sessions, V41, state_ttl_seconds=1e9))


def test_under_a_budget(tmp_path: Path, short_sessions: Trace) -> None:
    """The real SSD tier, its index and all, in a budget of 70 % of what is stored: within 1 % of the tokens hit."""
    budget, clock = 7 << 20, ManualClock()
    tier = SsdTier(tmp_path / "ssd", clock=clock, ttl_seconds=72 * 3600, budget_bytes=budget)
    parts = make_parts(tmp_path, clock, blocks=tier)
    with live(parts) as served, Client(served.url) as client:
        stage = Stage(clock, served, client)
        options = ReplayOptions(speed=1.0, durable=False)
        tally = stage.replayer(short_sessions, options=options).run(lambda _: upkeep_step(parts))
        live_bytes = tier.usage().used_bytes
    parts.close()
    result, ample = play(short_sessions, V41, ssd_bytes=budget), play(short_sessions, V41)
    assert result.evicted_ssd_bytes > 0
    assert result.hit_tokens < ample.hit_tokens * 0.97, "the budget matters"
    assert live_bytes <= budget
    assert result.hit_tokens == pytest.approx(tally.hit_tokens, rel=0.01)
    assert result.stored_bytes == pytest.approx(tally.stored_bytes, rel=0.05)
    assert (tally.misses, tally.requests) == ({}, len(short_sessions.requests))
