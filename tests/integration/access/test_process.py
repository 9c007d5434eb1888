"""A guarded service as people run it: tokens made on the command line, a file that changes while it serves."""

from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import httpx
import pytest

from service.access import GuardedAccess, Scope
from service.cli.main import main
from storage.clock import SystemClock
from tests.support.served import Served, eventually, kvshelf


def new_token(path: Path, *options: str) -> str:
    """Make a token as on the command line and add it to the file."""
    with redirect_stdout(StringIO()) as said:
        assert main(["token", "new", "--append-to", str(path), *options]) == 0
    return said.getvalue().strip()


def status(served: Served, token: str, path: str = "/v1/namespaces") -> int:
    return served.http.get(path, headers={"Authorization": f"Bearer {token}"}).status_code


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.toml"


@pytest.fixture
def served(tmp_path: Path, token_file: Path) -> Iterator[Served]:
    """Serves on all addresses of the machine, which takes tokens."""
    server = Served(tmp_path, "--host", "0.0.0.0", KVSHELF_ACCESS__TOKEN_FILE=str(token_file))
    yield server
    server.close()


def test_tokens_are_rotated_while_it_serves_and_a_broken_file_changes_nothing(served: Served, token_file: Path) -> None:
    first = new_token(token_file, "--tenant", "acme")
    operator = new_token(token_file, "--tenant", "*", "--scopes", "read")
    served.start()
    assert (status(served, first), status(served, operator, "/metrics")) == (200, 200)
    assert (status(served, first, "/metrics"), status(served, "x")) == (403, 401)

    second = new_token(token_file, "--tenant", "acme")
    eventually(lambda: status(served, second) == 200, 10)
    assert status(served, first) == 200

    whole = token_file.read_text()
    token_file.write_text(whole[:-20])
    eventually(lambda: served.http.get("/healthz").json()["status"] == "degraded", 10)
    assert (status(served, first), status(served, second)) == (200, 200)
    headers = {"Authorization": f"Bearer {operator}"}
    assert "\nkvshelf_token_file_ok 0.0" in served.http.get("/metrics", headers=headers).text

    token_file.write_text(whole[whole.index("[[token]]", 1) :])
    eventually(lambda: status(served, first) == 401, 10)
    assert status(served, second) == 200
    assert served.http.get("/healthz").json()["status"] == "ok"
    assert "\nkvshelf_token_file_ok 1.0" in served.http.get("/metrics", headers=headers).text
    assert served.stop() == 0
    events = [line["event"] for line in served.log() if line["event"].startswith("token")]
    assert events == ["tokens_travel_in_the_clear", "tokens_reloaded", "token_file_unusable", "tokens_reloaded"]


def test_without_tokens_it_does_not_start_for_others_to_reach(served: Served, tmp_path: Path, token_file: Path) -> None:
    options = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        ended = kvshelf(*options, "--host", host)
        assert ended.returncode == 2
        assert "set access.token_file (see `kvshelf token new`)" in ended.stderr
    ended = kvshelf(*options, KVSHELF_ACCESS__TOKEN_FILE=str(token_file))
    assert ended.returncode == 1
    assert f"{token_file} cannot be read" in ended.stderr
    assert not (tmp_path / "data").exists()
    new_token(token_file, "--tenant", "acme")
    served.start()
    assert httpx.get(f"{served.url}/readyz").status_code == 204


def test_the_command_line_refuses_what_is_no_token(token_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options in (["--tenant", ""], ["--tenant", "t", "--scopes", "root"], ["--tenant", "t", "--id", "A"]):
        assert main(["token", "new", *options]) == 2
    token_file.write_text("[[token]]\nid = 1\n")
    assert main(["token", "list", str(token_file)]) == 1
    token_file.unlink()
    token = new_token(token_file, "--tenant", "acme", "--id", "mine", "--days", "1")
    assert main(["token", "list", str(token_file)]) == 0
    shown = capsys.readouterr().out
    assert "acme" in shown
    assert "mine" in shown
    assert token.rpartition("_")[2] not in shown + token_file.read_text()
    assert token_file.stat().st_mode & 0o777 == 0o600


def test_the_command_line_shows_a_token_once_and_its_lines(
    token_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", "new", "--tenant", "acme", "--scopes", "read"]) == 0
    token, _, lines = capsys.readouterr().out.partition("\n")
    token_file.write_text(lines)
    principal = GuardedAccess(token_file, SystemClock()).authenticate(token)
    assert principal.tenant == "acme"
    assert principal.scopes == {Scope.READ}
