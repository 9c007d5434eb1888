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
    generate_sessions,
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
    for line in gzip.decompress(packed).splitlines():
        assert json.loads(line)["generated"] == {"by": "kvshelf trace generate", "version": 1, "seed": SAMPLE_SEED}


def test_the_sample_has_what_a_demonstration_needs() -> None:
    trace = read_trace(sample_path())
    assert (trace.sessions, trace.bad_lines, trace.block_tokens) == (12, 0, 64)
    assert 200 <= len(trace.requests) <= 300
    assert 5400 <= trace.duration_seconds <= 7200
    lines = _lines(trace.requests)
    agents = [name for name in lines if name[1] is not None]
    assert 3 <= len(agents) <= 30
    steps = [pair for line in lines.values() for pair in pairwise(line)]
    waits = [later.time_seconds - earlier.time_seconds for earlier, later in steps]
    assert sum(wait > _SNAPSHOT_LIFE_SECONDS for wait in waits) >= 10
    assert sum(later.input_tokens < earlier.input_tokens / 2 for earlier, later in steps) >= 3, "compactions"
    assert any(0 < earlier.full_blocks - common_blocks(earlier.runs, later.runs) <= 3 for earlier, later in steps)


def test_an_agent_shares_the_tools_of_its_session_only() -> None:
    lines = _lines(read_trace(sample_path()).requests)
    tool_tokens = {
        session["id"]: session["tool_tokens"]
        for session in map(json.loads, gzip.decompress(sample_path().read_bytes()).splitlines())
    }
    for (session, agent), requests in lines.items():
        if agent is not None:
            shared = common_blocks(lines[session, None][0].runs, requests[0].runs)
            assert shared == tool_tokens[session] // 64


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
    for line in _lines(trace.requests).values():
        assert all(earlier.time_seconds < later.time_seconds for earlier, later in pairwise(line))


def test_the_seed_decides_and_nothing_else() -> None:
    settings = GeneratorSettings(2)
    rng = Random(5)
    assert list(generate_sessions(rng, settings)) == list(generate_sessions(Random(5), settings))
    assert list(generate_sessions(rng, settings)) != list(generate_sessions(Random(5), settings))
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
    assert main(["trace", "generate", "--sessions", "0", "--out", str(tmp_path / "a")]) == 2
    assert main(["trace", "generate", "--out", str(tmp_path / "absent" / "a")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
