"""``kvshelf resume``: its JSON, its picture, and what it answers to being asked wrongly."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from service.cli import resume
from service.cli.main import main
from service.cli.resume_text import _WIDTH

V41 = "--profile deepseek-v4.1-flash/fp4 --block-tokens 128 "
LLAMA = "--profile llama-3-8b/bf16 --block-tokens 128 "


def run(capsys: pytest.CaptureFixture[str], line: str) -> str:
    assert main(["resume", *shlex.split(line)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def plan(capsys: pytest.CaptureFixture[str], line: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run(capsys, f"{line} --json"))
    return answer


def refused(capsys: pytest.CaptureFixture[str], line: str) -> str:
    """The error of a command that was asked wrongly."""
    try:
        status = main(["resume", *shlex.split(line)])
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    captured = capsys.readouterr()
    assert status == 2
    assert captured.out == ""
    return captured.err


def test_the_json_of_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(capsys, V41 + "--prompt-tokens 1000 --global-tokens 896 --snapshot 768") == {
        "mode": "snapshot",
        "exact": True,
        "matched_tokens": 768,
        "run_start": 768,
        "write_floor": 768,
        "decoder_run_start": 872,
        "replayed_tokens": 0,
        "saved_tokens": 768,
        "load": {"global": [0, 768], "snapshot": 768},
        "load_bytes": {"ssd": 6 * 128 * 890, "dram": 20 * 128 * 528},
    }


def test_the_json_of_a_bounded_replay(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(capsys, V41 + "--prompt-tokens 1000 --global-tokens 896") == {
        "mode": "bounded_replay",
        "exact": False,
        "matched_tokens": 768,
        "run_start": 640,
        "write_floor": 768,
        "decoder_run_start": 872,
        "replayed_tokens": 128,
        "saved_tokens": 640,
        "load": {"global": [0, 768], "snapshot": None},
        "load_bytes": {"ssd": 6 * 128 * 890, "dram": 0},
    }


def test_cold_is_all_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(capsys, V41 + "--prompt-tokens 1000 --global-tokens 896 --exact-only") == {
        "mode": "cold",
        "exact": True,
        "matched_tokens": 0,
        "run_start": 0,
        "write_floor": 0,
        "decoder_run_start": 872,
        "replayed_tokens": 0,
        "saved_tokens": 0,
        "load": {"global": [0, 0], "snapshot": None},
        "load_bytes": {"ssd": 0, "dram": 0},
    }


def test_loading_nothing_starts_where_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(capsys, LLAMA + "--prompt-tokens 1000 --global-tokens 896 --hbm-tokens 992")
    assert (made["mode"], made["run_start"], made["decoder_run_start"]) == ("resident", 992, 1000)
    assert made["load"] == {"global": [992, 992], "snapshot": None}


def test_everything_is_supported_and_approximate_allowed_unless_said_otherwise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    windows = "--profile gpt-oss-20b/bf16 --prompt-tokens 10000 --global-tokens 9984"
    assert plan(capsys, windows)["mode"] == "exact_rebuild"
    assert plan(capsys, f"{windows} --supports snapshot")["mode"] == "cold"
    assert plan(capsys, f"{windows} --supports ''")["mode"] == "cold"
    approximate = f"{windows} --supports snapshot,bounded_replay --replayed-snapshot 512 --snapshot 256"
    assert [plan(capsys, approximate)[key] for key in ("exact", "run_start")] == [False, 512]
    assert [plan(capsys, f"{approximate} --exact-only")[key] for key in ("exact", "run_start")] == [True, 256]


def test_the_exact_part_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    exact = V41 + "--prompt-tokens 2000 --global-tokens 1024 --exact-global-tokens 512 --snapshot 512 --exact-only"
    assert plan(capsys, f"{exact} --snapshot 1024")["matched_tokens"] == 512
    held = V41 + "--prompt-tokens 1000 --global-tokens 0 --hbm-tokens 800 --hbm-state"
    assert [plan(capsys, held)[key] for key in ("exact", "run_start")] == [False, 800]
    assert plan(capsys, f"{held} --hbm-exact-tokens 800")["exact"] is True


def test_a_limit_on_the_bytes_a_saved_token(capsys: pytest.CaptureFixture[str]) -> None:
    limited = V41 + "--prompt-tokens 1000 --global-tokens 896 --max-load-bytes-per-saved-token "
    assert plan(capsys, limited + "1068")["mode"] == "bounded_replay"
    assert plan(capsys, limited + "1067.9")["mode"] == "cold"


def test_a_profile_of_ones_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('id = "mine/u8"\n[[global_rows]]\nlayers = 2\nrow = [{ dtype = "u8", shape = [50] }]\n')
    made = plan(capsys, f"--profile {file} --block-tokens 10 --prompt-tokens 25 --global-tokens 20")
    assert (made["matched_tokens"], made["load_bytes"]["ssd"]) == (20, 20 * 100)


def test_the_picture_shows_each_range_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, V41 + "--prompt-tokens 1000 --global-tokens 896 --hbm-tokens 300")
    (bar,) = [line for line in text.splitlines() if line.startswith("  |")]
    assert re.fullmatch(r"  \|(#+)(=+)(~+)(\.+)\|", bar)
    for source, span in (
        ("hbm", "[0, 300)"),
        ("ssd", "[300, 640)"),
        ("replay", "[640, 768)"),
        ("prefill", "[768, 1,000)"),
    ):
        assert re.search(rf"{source} +{re.escape(span)}", text)
    for step in (
        "blocks of [256, 768), 456 kB",
        "runs [640, 1,000)",
        "decoder on [872, 1,000)",
        "no global KV below 768",
    ):
        assert step in text


def test_the_picture_names_the_snapshot_and_what_to_do_without(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, V41 + "--prompt-tokens 1000 --global-tokens 896 --snapshot 768")
    assert "snapshot at 768, 1.35 MB from the DRAM pool" in text
    assert "gone by then: bounded_replay" in text
    assert "below" not in text


@pytest.mark.parametrize(
    "line",
    [
        V41 + "--prompt-tokens 1 --global-tokens 0",
        V41 + "--prompt-tokens 1000000 --global-tokens 999936 --hbm-tokens 1",
        LLAMA + "--prompt-tokens 1000 --global-tokens 896 --hbm-tokens 999",
        "--profile mistral-7b-v0.1/bf16 --prompt-tokens 200000 --global-tokens 0",
    ],
)
def test_the_bar_is_as_wide_whatever_it_shows(capsys: pytest.CaptureFixture[str], line: str) -> None:
    text = run(capsys, line)
    (bar,) = [row for row in text.splitlines() if row.startswith("  |")]
    assert len(bar) == _WIDTH + 4
    marks = [row.split()[0] for row in text.splitlines() if row.startswith("  ") and row[2:5] in "###===~~~..."]
    assert all(mark[0] in bar for mark in marks)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (V41 + "--prompt-tokens 0 --global-tokens 0", "--prompt-tokens must be from 1"),
        (V41 + "--prompt-tokens 10 --global-tokens -1", "--global-tokens"),
        (V41 + "--prompt-tokens 10 --global-tokens 0 --exact-global-tokens 128", "--exact-global-tokens"),
        (V41 + "--prompt-tokens 10 --global-tokens 0 --hbm-tokens 11", "--hbm-tokens"),
        (V41 + "--prompt-tokens 10 --global-tokens 0 --hbm-exact-tokens 1", "--hbm-exact-tokens"),
        (
            V41 + "--prompt-tokens 10 --global-tokens 0 --snapshot 100",
            "--snapshot must be at positive multiples of 128",
        ),
        (V41 + "--prompt-tokens 10 --global-tokens 0 --max-load-bytes-per-saved-token -1", "--max-load-bytes"),
        (V41 + "--prompt-tokens ten --global-tokens 0", "--prompt-tokens: invalid int value: 'ten'"),
        (V41 + "--prompt-tokens 10 --global-tokens 0 --supports snapshot,magic", "magic: unknown"),
        (V41 + "--prompt-tokens 10", "--global-tokens"),
        ("--profile llama-3-8b --prompt-tokens 10 --global-tokens 0", "llama-3-8b/bf16"),
        ("--profile nowhere/mine.toml --prompt-tokens 10 --global-tokens 0", "nowhere/mine.toml"),
        (LLAMA + "--block-tokens 0 --prompt-tokens 10 --global-tokens 0", "block_tokens"),
        (
            "--profile deepseek-v4-flash/584+fp8 --block-tokens 64 --prompt-tokens 9 --global-tokens 0",
            "multiple of 128",
        ),
    ],
)
def test_an_error_names_what_is_wrong(capsys: pytest.CaptureFixture[str], line: str, named: str) -> None:
    assert named in refused(capsys, line)


def test_the_examples_of_the_help_work(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["resume", "--help"])
    examples = re.findall(r"^ +kvshelf resume (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert len(examples) == 4
    assert all(f"kvshelf resume {line}\n" in resume.__dict__["_EPILOG"] for line in examples)
    for line in examples:
        if "mine.toml" not in line:
            assert "The engine" in run(capsys, line)
