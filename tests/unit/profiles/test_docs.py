"""The examples of docs/profiles.md do what the page says."""

import json
import re
from pathlib import Path

import pytest

from service.cli.main import main
from service.profiles import Profile, load_profile_file, profile_from_document
from service.profiles.dtypes import DTYPES

PAGE = (Path(__file__).parents[3] / "docs" / "profiles.md").read_text()
EXAMPLES = dict(re.findall(r"<!-- example: (.+?) -->\n```\w+\n(.+?)```", PAGE, re.DOTALL))


def test_the_example_comes_to_what_the_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(EXAMPLES["mine.toml"])
    assert main(["profile", "show", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(EXAMPLES["what it comes to"])


def test_the_arithmetic_of_the_page_is_what_the_command_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(EXAMPLES["mine.toml"])
    assert main(["profile", "show", str(file)]) == 0
    shown = capsys.readouterr().out
    for line in ("2,756 bytes a token", "2 layers x 1,056 B a row", "4 layers x 644 B a row x 1/4 rows a token"):
        assert line in shown


def test_the_recurrent_example_loads(tmp_path: Path) -> None:
    file = tmp_path / "recurrent.toml"
    file.write_text(EXAMPLES["recurrent.toml"])
    profile = load_profile_file(file)
    assert (profile.replay, profile.snapshot_bytes) == ("none", 16_056_320)
    assert profile_from_document(profile.document()) == profile


def test_every_key_and_number_format_is_described() -> None:
    keys = {name for name in Profile.__dataclass_fields__ if name != "DESCRIPTIVE"}
    keys |= {"layers", "row", "rows_per_token", "window_tokens", "state", "dtype", "shape"}
    described = set(re.findall(r"[a-z0-9_]+", PAGE))
    assert (keys | set(DTYPES)) - described == set()
