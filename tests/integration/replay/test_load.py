"""A replay as a load test: when requests start, from when their latencies count, and what is left out."""

import json
import re
import shlex
import threading
from contextlib import closing
from pathlib import Path

import pytest

from kvshelf_client.answers import PlanAnswer
from kvshelf_client.client import Client
from kvshelf_client.http.transport import HttpTransport
from kvshelf_client.transport import TransportOptions
from service.cli.main import main
from service.replay.replayer import ReplayOptions
from service.traces.generate import GeneratorSettings, sample_path, trace_bytes, write_trace
from service.traces.reader import read_trace
from tests.support.browser import Browser
from tests.support.meddling import MeddlingTransport
from tests.support.pages import ROOT, fenced
from tests.support.stage import Stage
from tests.support.traces import hit_tokens_of, request, trace_of

_TRACE = trace_of([request(range(5)), request(range(9), time=1.0), request(range(12), time=2.0)])
_PLOTS = 7
_PAGE = ROOT / "docs/load-test.md"


def test_a_slow_service_is_charged_from_when_requests_were_to_start(stage: Stage) -> None:
    """Each plan takes ten seconds, and the requests are due a second apart: no coordinated omission."""

    def slow(plan: PlanAnswer) -> None:
        stage.clock.advance(10.0)

    with closing(HttpTransport(stage.url, TransportOptions())) as transport:
        client = Client(MeddlingTransport(transport, after_plan=slow), strict=True, budget_seconds=30)
        tally = stage.replayer(_TRACE, client=client, options=ReplayOptions(speed=1.0)).run()
    assert tally.latencies["plan"] == [10.0, 19.0, 28.0]
    assert tally.latencies["ready"] == [10.0, 19.0, 28.0]
    assert tally.max_lag_seconds == 18.0


def test_sub_agents_are_under_way_at_the_same_time(stage: Stage) -> None:
    """Both plans wait for each other."""
    trace = trace_of([request(range(3)), *(request(range(4), agent=name, time=1.0) for name in "ab")])
    together, asked = threading.Barrier(2, timeout=20), iter(range(3))

    def wait(plan: PlanAnswer) -> None:
        if next(asked):
            together.wait()

    with closing(HttpTransport(stage.url, TransportOptions())) as transport:
        client = Client(MeddlingTransport(transport, after_plan=wait), strict=True, budget_seconds=30)
        tally = stage.replayer(trace, client=client, options=ReplayOptions(concurrency=2)).run()
    assert tally.requests == 3


def test_what_starts_in_the_warm_up_is_left_out(stage: Stage) -> None:
    replayer = stage.replayer(_TRACE, options=ReplayOptions(speed=1.0, warmup_seconds=1.5))
    tally = replayer.run()
    assert (replayer.warmup.requests, tally.requests) == (2, 1)
    assert tally.elapsed_seconds == pytest.approx(0.5)
    assert sum(part.requests for part in replayer.timeline.values()) == 3


def test_a_trace_that_is_over_begins_anew_until_the_time_is_up(stage: Stage) -> None:
    replayer = stage.replayer(_TRACE, options=ReplayOptions(speed=1.0, duration_seconds=5.5))
    tally = replayer.run()
    assert tally.requests == 8, "at 0, 1, 2, 2, 3, 4, 4, 5 seconds"
    assert stage.clock.monotonic() == pytest.approx(5.5)
    assert tally.resumes["cold"] == 3, "each round has tokens of its own"


@pytest.mark.parametrize("options", [ReplayOptions(concurrency=8), ReplayOptions(speed=1e6, concurrency=32)])
def test_many_at_once_hit_what_an_infinite_cache_hits_or_less(
    stage: Stage, tmp_path: Path, options: ReplayOptions
) -> None:
    """Less only where two ask for the same at once, before either has stored it."""
    path = tmp_path / "short.jsonl"
    write_trace(path, trace_bytes(3, GeneratorSettings(sessions=10, turns=(2, 5))))
    trace = read_trace(path)
    tally = stage.replayer(trace, options=options).run()
    assert tally.requests == len(trace.requests)
    assert sum(tally.tokens_by_source.values()) == trace.input_tokens
    assert 0.8 * hit_tokens_of(trace) < tally.hit_tokens <= hit_tokens_of(trace)
    assert stage.parts.blocks.usage().pinned_bytes == 0, "every lease was released"


def test_the_report_is_one_page_with_plots_light_and_dark(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "load.html"
    options = ["--sessions", "4", "--concurrency", "4", "--duration", "4s", "--warmup", "1s", "--json"]
    assert main(["replay", str(sample_path()), "--url", stage.url, *options, "--report", str(page)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["loop"], document["concurrency"], document["complete"]) == ("closed", 4, True)
    assert document["warmup_requests"] > 0
    assert document.keys() <= set(re.findall(r"`([a-z_]+)`", _PAGE.read_text())), "the page names all that comes out"
    assert document["latency_seconds"]["ready"]["p99"] > 0
    grounds = set()
    with Browser() as browser:
        for dark in (False, True):
            browser.look(page.as_uri(), dark=dark)
            grounds.add(browser.value_of("getComputedStyle(document.body).backgroundColor"))
        assert browser.value_of("document.querySelectorAll('svg').length") == _PLOTS
        headings = browser.value_of("[...document.querySelectorAll('h2')].map(each => each.textContent).join()")
        colours = browser.value_of(
            "[...new Set([...document.querySelectorAll('rect')].map(e => getComputedStyle(e).fill))]"
        )
        assert browser.problems == []
        assert {url.partition(":")[0] for url in browser.asked_for} <= {"file", "about"}
    assert len(grounds) == 2
    for words in ("tokens came from", "resumed", "percentile", "Bytes", "DRAM pool", "SSD tier"):
        assert words in headings
    assert len(colours) > 4
    assert "<script" not in page.read_text()


def test_a_report_that_cannot_be_written_is_told_at_once(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = str(tmp_path / "absent" / "load.html")
    assert main(["replay", "sample", "--url", stage.url, "--report", where]) == 2
    assert "there is no such directory" in capsys.readouterr().err
    assert stage.metric("kvshelf_requests_total") == 0


@pytest.mark.parametrize("command", [line[2:] for block in fenced(_PAGE, "console") for line in block.splitlines()])
def test_the_commands_of_the_page(
    command: str, stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = shlex.split(command.replace("/tmp/", f"{tmp_path}/"))[1:]
    assert main([*arguments, "--url", stage.url]) == 0
    output = capsys.readouterr().out
    assert json.loads(output) if "--json" in arguments else "latency in ms" in output
