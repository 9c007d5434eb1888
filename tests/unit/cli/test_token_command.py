"""``kvshelf token new``: what becomes of the file, whose it is, and that no id comes into it twice."""

import os
import stat
from pathlib import Path

import pytest

from service.cli.main import main


def new(path: Path, *options: str) -> int:
    return main(["token", "new", "--tenant", "acme", "--append-to", str(path), *options])


def mode_of(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def test_an_id_that_the_file_has_is_refused_and_the_file_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tokens.toml"
    assert new(path, "--id", "scraper") == 0
    kept = path.read_bytes()
    capsys.readouterr()
    assert new(path, "--id", "scraper") == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert f"{path} has a token of the id scraper already" in seen.err
    assert path.read_bytes() == kept
    assert new(path) == new(path) == new(path, "--id", "other") == 0
    assert main(["token", "list", str(path)]) == 0


def test_a_file_that_cannot_be_used_is_not_added_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text("[[token]]\nid = 'half'\n")
    assert new(path) == 1
    assert f"{path}: token 1 (half).tenant" in capsys.readouterr().err
    assert path.read_text() == "[[token]]\nid = 'half'\n"


def test_a_new_file_is_its_owners_alone_and_one_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    new(path)
    assert mode_of(path) == "0o600"
    path.chmod(0o644)
    new(path)
    assert mode_of(path) == "0o644"


def test_the_group_of_the_service_may_read_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, group = tmp_path / "tokens.toml", 8710 if os.geteuid() == 0 else os.getegid()
    assert new(path, "--group", str(group)) == 0
    assert (mode_of(path), path.stat().st_gid, path.stat().st_uid) == ("0o640", group, os.geteuid())
    assert capsys.readouterr().err == ""
    assert new(path, "--group", "no-such-group") == 2
    assert "no group 'no-such-group'" in capsys.readouterr().err
    assert main(["token", "new", "--tenant", "acme", "--group", "1"]) == 2
