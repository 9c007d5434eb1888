"""``kvshelf simulate`` as a user runs it."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from service.cli.main import main
from service.traces.generate import sample_path
from service.traces.reader import read_trace
from tests.support.traces import hit_tokens_of

_PROMISED = {
    "requests", "prompt_tokens", "hit_tokens", "token_hit_rate", "matched_tokens", "tokens_by_source", "resumes",
    "replayed_tokens", "run_tokens", "saved_tokens", "stored_bytes", "peak_ssd_bytes", "peak_dram_bytes",
    "evicted_bytes", "written_bytes_per_day",
}  # fmt: skip


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "sample", "--json"]) == 0
    output = capsys.readouterr()
    document = json.loads(output.out)
    assert document.keys() >= _PROMISED
    assert document["hit_tokens"] == hit_tokens_of(read_trace(sample_path()))
    assert sum(document["tokens_by_source"].values()) == document["prompt_tokens"] == 6_877_348
    assert sum(document["resumes"].values()) == document["requests"] == 312
    assert (document["generated"], document["bad_lines"], output.err) == (True, 0, "")


def test_every_option_changes_something(capsys: pytest.CaptureFixture[str]) -> None:
    def outcome(*options: str) -> str:
        assert main(["simulate", "sample", "--requests", "150", "--json", *options]) == 0
        return capsys.readouterr().out

    seen = {outcome()}
    for options in (
        ["--profile", "llama-3-8b/bf16"],
        ["--bytes-per-token", "1"],
        ["--global-ttl", "60s"],
        ["--state-ttl", "1m"],
        ["--ssd-bytes", "100MiB"],
        ["--dram-bytes", "5MB"],
        ["--snapshots", "prompt-and-turn"],
        ["--snapshots", "every-4"],
        ["--snapshots", "none"],
        ["--no-supersede"],
        ["--ssd-bytes", "100MiB", "--no-carry-forward"],
        ["--exact-only"],
        ["--supports", "bounded_replay"],
        ["--sessions", "2"],
        ["--block-tokens", "128"],
    ):
        result = outcome(*options)
        assert result not in seen, options
        seen.add(result)


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "sample"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:3] == ["sample", "(kvshelf,", "generated):"]
    assert ["hit", "(stored", "prefix)", "6,073,664", "88.3%"] in lines
    assert ["peak", "on", "disk", "711", "MB"] in lines
    assert ["cold", "3", "1.0%"] in lines


def test_a_sweep_is_a_table_and_bars(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "sample", "--sweep", "state-ttl=1m,5m,10m,30m"]) == 0
    text = capsys.readouterr().out
    rows = [line for line in text.splitlines() if line.split(" ")[0] in ("1m", "5m", "10m", "30m")]
    table, bars = rows[:4], rows[4:]
    assert [row.split()[0] for row in table] == [bar.split()[0] for bar in bars] == ["1m", "5m", "10m", "30m"]
    shares = [float(row.split()[2].rstrip("%")) for row in table]
    assert shares == sorted(shares)
    assert all(len(bar.split("|")[1]) == 50 for bar in bars), "the parts of a bar add up"
    counts = [bar.count("#") for bar in bars]
    assert counts == [round(one / 2) for one in shares]
    assert "# snapshot, + bounded_replay, . cold" in text


@pytest.mark.parametrize(
    ("sweep", "values"),
    [
        ("global-ttl=60,1h", ["60", "1h"]),
        ("ssd-bytes=100MiB,1GB", ["100MiB", "1GB"]),
        ("dram-bytes=0,2MB,1GiB", ["0", "2MB", "1GiB"]),
        ("snapshots=none,every-4", ["none", "every-4"]),
    ],
)
def test_every_sweep(sweep: str, values: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "sample", "--sessions", "3", "--sweep", sweep, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    option = sweep.partition("=")[0]
    assert document["sweep"] == option
    assert [result[option] for result in document["results"]] == values
    for value, result in zip(values, document["results"], strict=True):
        flag = [f"--{option}", value]
        assert main(["simulate", "sample", "--sessions", "3", *flag, "--json"]) == 0
        alone = json.loads(capsys.readouterr().out)
        assert {key: alone[key] for key in result if key != option} == {
            key: figure for key, figure in result.items() if key != option
        }


def test_the_plot_is_one_file_that_needs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sweep.svg"
    command = ["simulate", "sample", "--sweep", "state-ttl=1m,30m", "--plot", str(path)]
    assert main(command) == 0
    text = path.read_text()
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {"svg", "title", "rect", "text"}
    assert "href" not in text
    assert text.count("http") == 1, "the name of the format"
    shown = [element.text or "" for element in root.iter() if element.tag.endswith("}title")]
    assert any(one.startswith("1m: snapshot ") for one in shown)
    assert any(one.startswith("30m: prefill ") for one in shown)
    assert {"1m: dram 14.9 MB", "30m: ssd 711 MB"} <= set(shown)
    assert main(["simulate", "sample", "--sweep", "state-ttl=1m", "--plot", str(tmp_path / "no" / "file.svg")]) == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--plot", "a.svg"], "--plot draws a sweep"),
        (["--ssd-bytes", "4096"], "budget_bytes=4096 is too small"),
        (["--ssd-bytes", "0"], "budget_bytes=0 is too small"),
        (["--profile", "nobody/knows"], "nobody/knows"),
        (["--profile", "deepseek-v4-flash/584+fp8"], "multiple of 128"),
        (["--block-tokens", "96"], "blocks of 64 tokens cannot be put together to blocks of 96"),
        (["--block-tokens", "32"], "blocks of 64 tokens cannot be put together to blocks of 32"),
    ],
)
def test_asked_wrongly(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "sample", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--state-ttl", "0"], "'0' is no duration above 0, such as 90s, 5m, 72h, 3d"),
        (["--state-ttl", "5 minutes"], "is no duration"),
        (["--state-ttl", "-5"], "--state-ttl"),
        (["--global-ttl", "9999999d"], "is no duration"),
        (["--dram-bytes", "1TiBs"], "'1TiBs' is no size, such as 4096, 64GB, 64GiB, 1.5TB"),
        (["--dram-bytes", "9999PB"], "is no size"),
        (["--snapshots", "sometimes"], "last-block, prompt-and-turn, every-N (blocks) or none"),
        (["--supports", "magic"], "magic: unknown"),
        (["--sweep", "colour=red"], "'colour=red' is not OPTION=V,V,.."),
        (["--sweep", "state-ttl="], "is not OPTION=V,V,.."),
        (["--sweep", "state-ttl=5m,"], "is no duration"),
    ],
)
def test_options_that_make_no_sense(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["simulate", "sample", *options])
    assert message in " ".join(capsys.readouterr().err.split())


def test_strictly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"kvshelf_trace": 1, "block_tokens": 64}\n{"t": 0, "in": 5, "runs": []}\n{}\n')
    assert main(["simulate", str(path), "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["bad_lines"] == 1
    assert output.err.startswith("line 3 left out: ")
    assert main(["simulate", str(path), "--strict"]) == 2
    assert "line 3: " in capsys.readouterr().err
