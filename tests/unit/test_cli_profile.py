"""``kvshelf profile``: what it prints, and what it answers to being asked wrongly."""

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from service.cli.main import main
from service.profiles import Profile, list_profiles
from service.profiles.profile import exact_number

LATE_LIST = """
import sys
from service.cli.main import main
sys.stdin.readline()
sys.exit(main(["profile", "list"]))
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["profile", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_the_list_has_a_line_for_each_profile(capsys: pytest.CaptureFixture[str]) -> None:
    heading, *lines = run(capsys, "list").splitlines()
    assert heading.split() == ["ID", "BYTES/TOKEN", "SNAPSHOT", "BYTES", "WINDOW", "STATE", "LAYERS", "REPLAY"]
    assert [line.split()[0] for line in lines] == [profile.id for profile in list_profiles()]
    assert ["deepseek-v4.1-flash/fp4", "890", "1,351,680", "128", "20", "bounded"] in [line.split() for line in lines]
    assert max(map(len, lines)) <= 100


def test_the_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(run(capsys, "list", "--json")) == [profile.facts() for profile in list_profiles()]


@pytest.mark.parametrize("profile", list_profiles(), ids=lambda profile: profile.id)
def test_a_profile_as_json_and_as_text(capsys: pytest.CaptureFixture[str], profile: Profile) -> None:
    profile_id, facts = profile.id, profile.facts()
    assert json.loads(run(capsys, "show", profile_id, "--json")) == facts
    text = run(capsys, "show", profile_id)
    for key in ("global_bytes_per_token", "state_bytes", "auxiliary_state_bytes"):
        if facts[key]:
            assert f"{facts[key]:,} bytes" in text
    assert profile.digest in text
    assert str(facts["replay"]) in text


def test_the_text_of_v4_1_shows_the_arithmetic(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "show", "deepseek-v4.1-flash/fp4")
    for line in (
        "main row of layers 2, 8, 14: 3 layers x 288 B a row x 1/2 rows a token = 432 B",
        "key: 128 mxfp4, one scale for 32 = 68 B",
        "a block of 128 tokens: 113,920 bytes",
        "encoder sliding window: 20 layers x 128 tokens x 528 B = 1,351,680 B",
        "as much as the global KV of 1,519 tokens",
        "Decoder window: the last 128 tokens",
        "Blocks: a multiple of 2 tokens",
    ):
        assert line in text


def test_a_block_is_shown_at_a_size_that_the_profile_allows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "odd.toml"
    file.write_text(
        'id = "odd"\n[[global_rows]]\nlayers = 1\nrows_per_token = "1/3"\nrow = [{dtype = "u8", shape = [1]}]'
    )
    text = run(capsys, "show", str(file))
    assert "Global KV: 1/3 bytes a token" in text
    assert "a block of 129 tokens: 43 bytes" in text
    assert json.loads(run(capsys, "show", str(file), "--json"))["global_bytes_per_token"] == "1/3"


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("deepseek-v4.1-flash", "did you mean deepseek-v4.1-flash/fp"),
        ("absent.toml", "No such file"),
        ("", "profile list"),
    ],
)
def test_being_asked_wrongly_is_status_2_and_one_line(
    capsys: pytest.CaptureFixture[str], argument: str, text: str
) -> None:
    assert main(["profile", "show", argument]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [["profile", "--help"], ["profile", "list", "--help"], ["profile", "show", "--help"]]
)
def test_help_shows_how_to_write_a_profile(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0
    assert "cat > mine.toml" in capsys.readouterr().out


def test_the_example_of_the_help_works(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["profile", "--help"])
    example = capsys.readouterr().out.split("<<'END'\n")[1].split("  END\n")[0]
    file = tmp_path / "mine.toml"
    file.write_text(example)
    assert json.loads(run(capsys, "show", str(file), "--json"))["global_bytes_per_token"] == 131_072


def test_a_reader_that_goes_away_is_no_error() -> None:
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            LATE_LIST,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.close()
        child.stdout = None
        _, errors = child.communicate(b"go\n", timeout=60)
    assert (child.returncode, errors) == (0, b"")


@pytest.mark.parametrize(
    ("value", "exact"),
    [(Fraction(890), 890), (Fraction(14057, 4), 3514.25), (Fraction(10, 3), "10/3"), (Fraction(0), 0)],
)
def test_numbers_lose_nothing(value: Fraction, exact: object) -> None:
    number = exact_number(value)
    assert number == exact
    assert type(number) is type(exact)
