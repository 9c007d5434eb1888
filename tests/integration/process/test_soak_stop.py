"""A soak that is stopped takes down all that it started."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.served import eventually


def processes_of(directory: Path) -> list[str]:
    """The command lines of processes that have that directory for their temporary files."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={directory}\0" in (path / "environ").read_text(errors="replace"):
                found.append((path / "cmdline").read_text())
        except OSError:  # It ended meanwhile.
            continue
    return found


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where a soak has its temporary files: a short name, since some are sockets."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        yield Path(name)


@contextmanager
def soak_of(*trials: str, scratch: Path, results: Path) -> Iterator["subprocess.Popen[str]"]:
    """A running soak of these trials."""
    command = [sys.executable, "-m", "tests.load.soak", "--results", str(results)]
    command += [argument for trial in trials for argument in ("--only", trial)]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as soak:
        try:
            yield soak
        finally:
            soak.terminate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_of_a_soak_that_is_stopped(tmp_path: Path, scratch: Path, number: int) -> None:
    with soak_of("outages", "kills", scratch=scratch, results=tmp_path) as soak:
        eventually(lambda: len([line for line in processes_of(scratch) if "service.cli.main" in line]) == 2, 30, 0.2)
        soak.send_signal(number)
        said = soak.communicate(timeout=60)[1]
        assert soak.returncode == 130, said
    assert processes_of(scratch) == []
    assert list(scratch.iterdir()) == []


def test_a_trial_that_is_killed_fails_and_so_do_the_servers_that_it_left(tmp_path: Path, scratch: Path) -> None:
    with soak_of("kills", scratch=scratch, results=tmp_path) as soak:
        eventually(lambda: [line for line in processes_of(scratch) if "service.cli.main" in line], 30, 0.2)
        (trial,) = Path(f"/proc/{soak.pid}/task/{soak.pid}/children").read_text().split()
        os.kill(int(trial), signal.SIGKILL)
        said = soak.communicate(timeout=60)[1]
    assert soak.returncode == 1
    assert "kills: FAILED" in said
    assert "it left 1 processes behind" in said
    assert processes_of(scratch) == []
