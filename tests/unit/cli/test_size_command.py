"""``kvshelf size`` as a user runs it."""

import json
from typing import Any

import pytest

from service.cli.main import main

_NUMBERS = ["--sessions-per-day", "1000", "--turns", "5", "--turn-tokens", "1000"]
_PRICES = [
    "--price-engine-hour", "36", "--prefill-tokens-per-second", "10000",
    "--price-ssd-tb-month", "20", "--price-dram-gb-month", "2",
]  # fmt: skip


def sized(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["size", *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_model_alone(capsys: pytest.CaptureFixture[str]) -> None:
    document = sized(capsys, "--profile", "deepseek-v1-67b/bf16")
    assert document["model"]["context_gib"] == {"131072": 47.5, "1048576": 380.0}
    assert "plan" not in document
    assert main(["size", "--profile", "deepseek-v1-67b/bf16"]) == 0
    assert ["global", "KV", "of", "131,072", "tokens", "47.5", "GiB"] in _words(capsys)


def test_from_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """A session's 16,000 tokens are 125 blocks of 28 pages; each lives three days and as long as the session."""
    document = sized(
        capsys, *_NUMBERS, "--gaps", "20s:1", "--headroom", "1", "--write-factor", "1", "--peak-factor", "1"
    )
    plan = document["plan"]
    record = 28 * 4096
    assert plan["written_bytes_per_day"] == pytest.approx(1000 * 125 * record)
    assert plan["ssd_bytes"] == pytest.approx(3 * 1000 * 125 * record, rel=1e-3)
    assert plan["requests_per_day"] == 5000
    assert plan["prompt_tokens_per_day"] == 1000 * (12_000 + 13_000 + 14_000 + 15_000 + 16_000)
    assert plan["ssd_tb"] * 1e12 == plan["ssd_bytes"]
    assert plan["bounded_replay_share"] == 0, "no gap is longer than a snapshot lives"
    more = sized(capsys, *_NUMBERS, "--gaps", "20s:1,10m:1")["plan"]
    assert more["bounded_replay_share"] == pytest.approx(0.5 * 4 / 5, abs=0.03), "half of all but the first"


def test_from_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    own, scaled = sized(capsys, "sample")["plan"], sized(capsys, "sample", "--sessions-per-day", "1000")["plan"]
    assert own["sessions_per_day"] == pytest.approx(12 / 6329.304 * 86_400)
    assert own["requests_per_day"] == pytest.approx(312 / 6329.304 * 86_400)
    factor = scaled["sessions_per_day"] / own["sessions_per_day"]
    assert scaled["dram_bytes"] == pytest.approx(own["dram_bytes"] * factor)
    assert own["ssd_bytes"] < scaled["ssd_bytes"] < own["ssd_bytes"] * factor, "what sessions share is there once"
    shares = {mode: share for mode, share in own["resume_shares"].items() if share}
    assert shares == {"snapshot": 224 / 312, "bounded_replay": 85 / 312, "cold": 3 / 312}
    assert sized(capsys, "sample")["workload"]["generated"] is True


def test_every_option_changes_something(capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--sessions-per-day", "1000", "--turns", "2", "--turn-tokens", "1000"]
    seen = [sized(capsys, *short)]
    for options in (
        ["--profile", "deepseek-v4.1-flash/fp8"],
        ["--block-tokens", "64"],
        ["--first-tokens", "20000"],
        ["--shared-tokens", "6000"],
        ["--snapshots", "prompt-and-turn"],
        ["--snapshots", "prompt-and-turn", "--answer-tokens", "900"],
        ["--gaps", "1h:1"],
        ["--peak-factor", "5"],
        ["--retention", "24h"],
        ["--state-ttl", "1m"],
        ["--exact-only"],
        ["--supports", "bounded_replay"],
        ["--headroom", "2"],
        ["--write-factor", "2"],
        ["--drive-bytes", "7.68TB", "--drive-dwpd", "1"],
        ["--drive-bytes", "7.68TB", "--drive-dwpd", "1", "--drive-years", "3"],
        ["--drive-bytes", "7.68TB", "--drive-tbw", "14000TB"],
        _PRICES,
    ):
        document = sized(capsys, *short, *options)
        assert document not in seen, options
        seen.append(document)


def test_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "sample", "--drive-bytes", "1TB", "--drive-dwpd", "1", *_PRICES]) == 0
    rows = _words(capsys)
    assert ["workload", "sample", "(generated)"] in rows
    assert ["drives", "of", "1", "TB", "1"] in rows
    assert ["a", "million", "tokens", "missed", "1"] in rows
    assert ["requests", "by", "bounded_replay", "27.2%"] in rows


def test_a_workload_in_numbers_has_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", *_NUMBERS]) == 0
    assert ["workload"] in _words(capsys)


def test_what_is_of_the_model_needs_no_workload(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "--profile", "llama-3-8b/bf16", "--block-tokens", "64", "--json"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--turns", "5"], "a workload in numbers needs --sessions-per-day"),
        (["sample", "--first-tokens", "5"], "a trace says this itself: --first-tokens"),
        (["--drive-bytes", "1TB"], "--drive-bytes needs a workload"),
        (["--drive-tbw", "14000TB"], "--drive-tbw needs a workload"),
        (["--retention", "24h"], "--retention needs a workload"),
        (["--exact-only"], "--exact-only needs a workload"),
        (["--snapshots", "none"], "--snapshots needs a workload"),
        (["--requests", "5"], "--requests needs a workload"),
        ([*_NUMBERS, "--drive-bytes", "1TB"], "--drive-bytes with --drive-tbw or --drive-dwpd"),
        ([*_NUMBERS, "--drive-dwpd", "1"], "--drive-bytes with --drive-tbw or --drive-dwpd"),
        ([*_NUMBERS, *_PRICES[:2]], "missing: --prefill-tokens-per-second, --price-ssd-tb-month"),
        (_PRICES, "needs a workload"),
        ([*_NUMBERS, "--shared-tokens", "99999"], "shared tokens are a part of the first prompt"),
        (["--profile", "nobody/knows"], "nobody/knows"),
        (["--block-tokens", "3"], "multiple of 2"),
        (["absent.jsonl"], "cannot read"),
    ],
)
def test_asked_wrongly(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("gaps", ["20s", "20s:", ":1", "20s:x", "0:1", "20s:-1"])
def test_gaps_that_are_none(gaps: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["size", *_NUMBERS, "--gaps", gaps])
    assert "argument --gaps" in capsys.readouterr().err


def _words(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]
