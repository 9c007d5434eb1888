"""Every command that the pages about traces, simulation and sizing show is run, as it is shown."""

import json
import re
import shlex
from pathlib import Path

import pytest

from service.cli.main import main

_DOCS = Path(__file__).parents[3] / "docs"
_PAGES = ("trace-format.md", "simulate.md", "sizing.md")
_COMMANDS = [
    (page, line[2:])
    for page in _PAGES
    for block in re.findall(r"(?ms)^```console\n(.*?)^```$", (_DOCS / page).read_text())
    for line in block.splitlines()
    if line.startswith("$ ")
]


def test_each_page_shows_commands() -> None:
    assert {page for page, _ in _COMMANDS} == set(_PAGES)


@pytest.mark.parametrize(("page", "command"), _COMMANDS)
def test_a_command_runs(page: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, *arguments = shlex.split(command.replace("/tmp/", f"{tmp_path}/"))
    assert program == "kvshelf"
    assert main(arguments) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert json.loads(output.out) if "--json" in arguments else output.out
    files = [word for word in arguments if word.startswith(str(tmp_path))]
    assert all(Path(name).stat().st_size for name in files)


def test_the_lines_of_our_own_format_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"(?ms)^```json\n(.*?)^```$", (_DOCS / "trace-format.md").read_text())
    path = tmp_path / "shown.jsonl"
    path.write_text("".join(blocks))
    assert main(["simulate", str(path), "--strict", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 3


def test_the_keys_are_those_described(capsys: pytest.CaptureFixture[str]) -> None:
    section = (_DOCS / "simulate.md").read_text().partition("## What comes out")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_]+)`", section))
    assert main(["simulate", "sample", "--sessions", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() <= named


def test_the_keys_of_sizing_are_those_described(capsys: pytest.CaptureFixture[str]) -> None:
    named = set(re.findall(r"`([a-z_]+)`", (_DOCS / "sizing.md").read_text()))
    command = "size sample --json --drive-bytes 1TB --drive-dwpd 1 --price-engine-hour 1 --prefill-tokens-per-second 9"
    assert main([*command.split(), "--price-ssd-tb-month", "1", "--price-dram-gb-month", "1"]) == 0
    document = json.loads(capsys.readouterr().out)
    nested = [document, document["model"], document["plan"], document["plan"]["drives"], document["prices"]]
    assert {key for part in nested for key in part} <= named
