"""The trace generator: the shipped sample, what its sessions look like, and its command."""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from service.cli.main import main
from service.traces.base import TraceRequest
from service.traces.chain import common_blocks
from service.traces.generate import (
    SAMPLE_SEED,
    GeneratorSettings,
    generate_requests,
    sample_path,
    trace_bytes,
    write_trace,
)
from service.traces.reader import read_trace

_SNAPSHOT_LIFE_SECONDS = 300


def _lines(requests: tuple[TraceRequest, ...]) -> dict[tuple[str | None, str | None], list[TraceRequest]]:
    lines: dict[tuple[str | None, str | None], list[TraceRequest]] = {}
    for request in requests:
        lines.setdefault((request.session, request.agent), []).append(request)
    return lines


def test_the_sample_is_what_the_generator_makes() -> None:
    assert gzip.decompress(sample_path().read_bytes()) == trace_bytes(SAMPLE_SEED, GeneratorSettings())


def test_the_sample_is_small_and_says_that_it_is_generated() -> None:
    packed = sample_path().read_bytes()
    assert len(packed) < 100_000
    assert packed[4:8] == bytes(4), "the time in the gzip header is 0"
    label = {"by": "kvshelf trace generate", "version": 2, "seed": SAMPLE_SEED, "sessions": 12}
    assert json.loads(gzip.decompress(packed).splitlines()[0])["generated"] == label
    assert read_trace(sample_path()).generated == label


def test_the_sample_has_what_a_demonstration_needs() -> None:
    trace = read_trace(sample_path())
    assert (trace.sessions, trace.bad_lines, trace.block_tokens) == (12, 0, 64)
    assert 200 <= len(trace.requests) <= 350
    assert 5400 <= trace.duration_seconds <= 7200
    lines = _lines(trace.requests)
    agents = [name for name in lines if name[1] is not None]
    assert 10 <= len(agents) <= 40
    steps = [pair for line in lines.values() for pair in pairwise(line)]
    waits = [later.time_seconds - earlier.time_seconds for earlier, later in steps]
    assert sum(wait > _SNAPSHOT_LIFE_SECONDS for wait in waits) >= 10
    shrinks = [later for earlier, later in steps if later.input_tokens < earlier.input_tokens / 2]
    compactions = [request for request in trace.requests if request.is_compaction]
    assert len(compactions) >= 6
    assert all(request.is_compaction for request in shrinks)
    assert any(a.time_seconds <= c.time_seconds < b.time_seconds for a, b, c in _beside(lines)), "agents side by side"
    assert any(0 < earlier.full_blocks - common_blocks(earlier.runs, later.runs) <= 3 for earlier, later in steps)


def _beside(
    lines: dict[tuple[str | None, str | None], list[TraceRequest]],
) -> list[tuple[TraceRequest, TraceRequest, TraceRequest]]:
    """First and last request of an agent, and the first one of another agent of its session."""
    agents = [requests for (_, agent), requests in lines.items() if agent is not None]
    return [
        (one[0], one[-1], other[0])
        for one in agents
        for other in agents
        if one is not other and one[0].session == other[0].session
    ]


def test_sessions_share_tools_and_system_prompt_and_agents_the_tools_only() -> None:
    lines = _lines(read_trace(sample_path()).requests)
    mains = {name: requests[0] for (name, agent), requests in lines.items() if agent is None}
    shared = {
        frozenset({a, b}): common_blocks(mains[a].runs, mains[b].runs) for a in mains for b in mains if a is not b
    }
    openings = {length for length in shared.values() if length}
    assert 1 <= len(openings) <= 3, "one opening a build, the same for all of its sessions"
    for (session, agent), requests in lines.items():
        if agent is not None and session is not None:
            tools = common_blocks(mains[session].runs, requests[0].runs)
            assert 7_000 // 64 <= tools <= 13_000 // 64
            assert all(common_blocks(mains[session].runs, later.runs) == tools for later in requests)


def test_a_week_has_returns_after_hours_and_days() -> None:
    settings = GeneratorSettings(sessions=30, duration_seconds=7 * 86_400.0)
    requests = generate_requests(Random(3), settings)
    mains = [line for (_, agent), line in _lines(tuple(requests)).items() if agent is None]
    waits = [later.time_seconds - earlier.time_seconds for line in mains for earlier, later in pairwise(line)]
    assert sum(3600 <= wait < 86_400 for wait in waits) >= 5
    assert sum(wait >= 86_400 for wait in waits) >= 5
    starts = [line[0].time_seconds for line in mains]
    assert starts[0] == 0
    assert 5 * 86_400 < max(starts) <= settings.last_start_seconds == 6 * 86_400


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "settings",
    [GeneratorSettings(), GeneratorSettings(1, 60.0, 512, (1, 1)), GeneratorSettings(30, 500.0, 1, (1, 12))],
)
def test_every_setting_makes_a_good_trace(tmp_path: Path, seed: int, settings: GeneratorSettings) -> None:
    path = tmp_path / "trace.jsonl"
    write_trace(path, trace_bytes(seed, settings))
    trace = read_trace(path)
    assert (trace.sessions, trace.bad_lines) == (settings.sessions, 0)
    assert trace.duration_seconds <= settings.duration_seconds
    assert trace.requests[0].time_seconds == 0
    assert all(one.scope is None and one.session is not None for one in trace.requests)
    for line in _lines(trace.requests).values():
        assert all(earlier.time_seconds < later.time_seconds for earlier, later in pairwise(line))


def test_the_seed_decides_and_nothing_else() -> None:
    settings = GeneratorSettings(2)
    rng = Random(5)
    assert generate_requests(rng, settings) == generate_requests(Random(5), settings)
    assert generate_requests(rng, settings) != generate_requests(Random(5), settings)
    assert trace_bytes(1, settings) != trace_bytes(2, settings)


@pytest.mark.parametrize(
    "values", [{"sessions": 0}, {"duration_seconds": 0}, {"block_tokens": 0}, {"turns": (0, 3)}, {"turns": (4, 3)}]
)
def test_settings_that_make_no_sense(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be|turns"):
        GeneratorSettings(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_the_command(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    assert main(["trace", "generate", "--seed", "3", "--sessions", "2", "--hours", "0.5", "--out", str(path)]) == 0
    trace = read_trace(path)
    assert trace.sessions == 2
    assert f"2 generated sessions, {len(trace.requests)} requests, seed 3" in capsys.readouterr().out


def test_the_command_asked_wrongly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for bad in (["--sessions", "0"], ["--days", "0"], ["--days", "400"], ["--hours", "1", "--days", "1"]):
        with pytest.raises(SystemExit, match="2"):
            main(["trace", "generate", *bad, "--out", str(tmp_path / "a")])
    assert main(["trace", "generate", "--out", str(tmp_path / "absent" / "a")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
