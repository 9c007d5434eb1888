"""``kvshelf replay`` before it reaches a service, and what it says when it does not."""

import json
import socket
from pathlib import Path

import pytest

from service.cli.main import main
from tests.support.scripted_server import Reply, ScriptedServer, answer


@pytest.fixture
def closed_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sessions", "0"], "'0' is no whole number from 1 on"),
        (["--requests", "many"], "'many' is no whole number from 1 on"),
        (["--bytes-per-token", "-1"], "'-1' is no whole number from 1 on"),
        (["--speed", "-0.1"], "'-0.1' is no number that is 0 or from 0.001 to 1e+06"),
        (["--speed", "inf"], "'inf' is no number that is 0 or from 0.001 to 1e+06"),
        (["--speed", "fast"], "'fast' is no number that is 0 or from 0.001 to 1e+06"),
        (["--timeout", "0"], "'0' is no number from 0.001 to 86400"),
        (["--shards", "0"], "'0' is no whole number from 1 on"),
    ],
)
def test_options_out_of_bounds(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["replay", "sample", *(f"{options[0]}={option}" for option in options[1:])])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.jsonl"], "cannot read absent.jsonl"),
        (["sample", "--url", "somewhere"], "'somewhere' is no service address"),
        (["sample", "--profile", "absent.toml"], "absent.toml"),
    ],
)
def test_asked_wrongly(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", *arguments]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""


def test_sessions_of_a_trace_that_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 3, "output_length": 1, "hash_ids": []}')
    assert main(["replay", str(path), "--sessions", "1"]) == 2
    assert "knows no sessions" in capsys.readouterr().err


def test_bad_lines_are_told_but_not_all_of_them(
    tmp_path: Path, closed_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"timestamp": 0, "input_length": 3, "output_length": 1, "hash_ids": []}
    path = tmp_path / "chat.jsonl"
    path.write_text("\n".join([json.dumps(good), *["{"] * 12]))
    assert main(["replay", str(path), "--url", closed_url]) == 1
    told = capsys.readouterr().err
    assert "line 2 left out" in told
    assert "line 11 left out" in told
    assert "line 12 left out" not in told
    assert "12 lines left out in all" in told


def test_nobody_listens(closed_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "sample", "--url", closed_url]) == 1
    assert "refused" in capsys.readouterr().err


@pytest.mark.parametrize(("status", "code"), [("409 Conflict", 2), ("422 Unprocessable", 2), ("500 Broken", 1)])
def test_a_namespace_that_is_not_taken(status: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    reply = Reply(answer(b'{"detail": "salt differs"}', status))
    with ScriptedServer([reply]) as server:
        assert main(["replay", "sample", "--url", server.url, "--namespace", "mine"]) == code
    assert "salt differs" in capsys.readouterr().err
    assert server.seen[0].target == "/v1/namespaces/mine"
    assert json.loads(server.seen[0].body)["salt"] == ""


def test_each_run_has_a_fresh_salt_and_so_a_name_of_its_own() -> None:
    problem = Reply(answer(b"{}", "500 Broken"))
    with ScriptedServer([problem] * 4) as server:
        for more in ([], [], ["--salt", "again"], ["--salt", "again"]):
            main(["replay", "sample", "--url", server.url, *more])
    salts = [json.loads(seen.body)["salt"] for seen in server.seen]
    names = [seen.target for seen in server.seen]
    assert salts[0] != salts[1]
    assert salts[2:] == ["again", "again"]
    assert len(set(names)) == 3
    assert names[2] == names[3]
