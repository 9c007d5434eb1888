"""A start that cannot be says why in one line; one that is interrupted leaves nothing behind."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from service.cli.main import main
from tests.integration.process.conftest import Serve
from tests.support.served import eventually, kvshelf

Prepare = Callable[[Path], list[str]]


def a_file(directory: Path) -> list[str]:
    (directory / "file").touch()
    return ["--data-dir", str(directory / "file")]


def below_a_file(directory: Path) -> list[str]:
    (directory / "file").touch()
    return ["--data-dir", str(directory / "file" / "data")]


def another_format(directory: Path) -> list[str]:
    (directory / "FORMAT").write_text('{"format": 99, "page_bytes": 4096}')
    return ["--data-dir", str(directory)]


def an_unknown_key(directory: Path) -> list[str]:
    (directory / "kvshelf.toml").write_text("[store]\nbudget = 1\n")
    return ["--config", str(directory / "kvshelf.toml")]


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (a_file, "cannot use the data directory {path}/file: it is a file"),
        (below_a_file, "cannot use the data directory {path}/file/data: Not a directory"),
        (another_format, "says on-disk format 99"),
        (lambda path: ["--redis-url", "http://:secret@x", "--data-dir", f"{path}"], "the Redis URL is not of the form"),
    ],
)
def test_what_is_in_the_way_is_said_in_one_line(prepare: Prepare, message: str, tmp_path: Path) -> None:
    ended = kvshelf("serve", "--port", "0", *prepare(tmp_path))
    assert ended.stderr.startswith("kvshelf serve: ")
    assert message.format(path=tmp_path) in ended.stderr
    assert "secret" not in ended.stderr
    assert (ended.stderr.count("\n"), ended.stdout, ended.returncode) == (1, "", 1)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (
            an_unknown_key,
            "bad settings (file {path}/kvshelf.toml, environment and flags together): store.budget: unknown",
        ),
        (lambda _: ["--port", "70000"], "bad settings: server.port: must be at most 65535"),
        (lambda _: ["--host", "0.0.0.0"], "bad settings: server.host = '0.0.0.0' is no loopback address"),
        (lambda path: ["--config", f"{path}/none"], "cannot read the configuration file {path}/none"),
    ],
)
def test_bad_settings_are_said_in_one_line(
    prepare: Prepare, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *prepare(tmp_path)]) == 2
    output = capsys.readouterr()
    assert output.err.startswith("kvshelf serve: " + message.format(path=tmp_path))
    assert (output.err.count("\n"), output.out) == (1, "")


def test_a_bad_setting_in_the_environment_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSHELF_STORE__BUDGT_BYTES", "1")
    assert main(["serve"]) == 2
    assert capsys.readouterr().err == (
        "kvshelf serve: the environment variable KVSHELF_STORE__BUDGT_BYTES names no setting; "
        "did you mean KVSHELF_STORE__BUDGET_BYTES?\n"
    )


def test_a_second_service_on_the_same_directory_is_refused(serve: Serve) -> None:
    served = serve()
    ended = kvshelf("serve", "--port", "0", "--data-dir", str(served.data_dir))
    process = served.server.process.pid
    assert ended.stderr == (
        f"kvshelf serve: {served.data_dir} is in use by process {process}; stop it or choose another data directory\n"
    )
    assert (ended.stdout, ended.returncode) == ("", 1)
    assert served.http.get("/readyz").status_code == 204
    assert served.stop() == 0


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = kvshelf("serve", "--port", str(port), "--data-dir", str(tmp_path / "data"))
    assert ended.stderr == f"kvshelf serve: cannot listen on 127.0.0.1 port {port}: Address already in use\n"
    assert ended.returncode == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_it_opens_is_clean(number: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "service.cli.main", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        eventually((tmp_path / "data" / "kvshelf.lock").exists, 20, every_seconds=0.0005)
        process.send_signal(number)
        _, log = process.communicate(timeout=20)
    assert process.returncode == 0
    assert '"event": "stopped"' in log.splitlines()[-1]


def test_nobody_needs_to_read_what_it_says(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "service.cli.main", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert '"event": "serving"' in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert '"event": "stopped"' in process.stderr.read()
    assert process.returncode == 0
