"""The command line as a whole: help, versions, and what nobody meant."""

import pytest

from service.cli.main import main
from service.version import __version__

COMMANDS = [
    "demo", "serve", "replay", "resume", "profile", "profile list", "profile show", "trace", "trace generate",
    "config", "config show",
]  # fmt: skip


def test_every_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    assert all(f"\n    {command} " in listed for command in COMMANDS if " " not in command)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_shows_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    output = capsys.readouterr()
    assert ended.value.code == 0
    assert output.out.startswith(f"usage: {f'kvshelf {command}'.strip()} ")
    examples = output.out.partition("\nexample")[2]
    assert f"  kvshelf {command}".rstrip() in examples
    assert output.err == ""


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "kvshelf serve --data-dir" in output.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sevre"], "invalid choice: 'sevre' (choose from 'demo', 'serve', "),
        (["config"], "the following arguments are required: ACTION"),
        (["config", "shw"], "invalid choice: 'shw'"),
        (["serve", "--prot", "1"], "unrecognized arguments: --prot 1"),
        (["serve", "--port", "x"], "argument --port: invalid int value: 'x'"),
        (["demo", "--speed", "0"], "argument --speed: '0' is no number from 1 to 10000"),
        (["demo", "--requests", "0"], "argument --requests: '0' is no whole number from 1 on"),
        (["replay", "sample", "--speed", "1e-9"], "argument --speed: '1e-9' is no number that is 0 or from 0.001 to"),
        (["replay", "sample", "--timeout", "1e10"], "argument --timeout: '1e10' is no number from 0.001 to 86400"),
    ],
)
def test_what_nobody_meant(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"kvshelf {__version__}\n")
