"""``kvshelf demo`` ends by itself, and leaves no process and no directory however it ends."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.served import eventually


@contextmanager
def demo(directory: Path, *options: str) -> "Iterator[subprocess.Popen[str]]":
    """Run a demo whose temporary files go below ``directory``; nothing may be left there or running afterwards."""
    command = [sys.executable, "-P", "-m", "service.cli.main", "demo", *options]
    environment = {**os.environ, "TMPDIR": str(directory)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
    assert list(directory.iterdir()) == []
    assert services_in(directory) == []


def services_in(directory: Path) -> list[int]:
    """The processes whose command line names ``directory``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            is_one = os.fsencode(directory) in path.read_bytes()
        except OSError:
            continue
        found += [int(path.parent.name)] if is_one else []
    return found


def test_it_ends_by_itself(tmp_path: Path) -> None:
    with demo(tmp_path, "--speed", "5000", "--requests", "40") as process:
        output, log = process.communicate(timeout=60)
    assert process.returncode == 0, log
    assert "Time runs 5000 times as fast" in output
    assert "global KV lives 72 h / 5000 = 52 s, snapshots 5 min / 5000 = 0.06 s" in output
    assert "requests" in output
    counted = dict(re.findall(r"(?m)^ *(ssd|replay|prefill) +([\d,]+)", output))
    assert counted.keys() == {"ssd", "replay", "prefill"}
    assert all(int(tokens.replace(",", "")) > 0 for tokens in counted.values())
    assert "Traceback" not in log


def as_a_shell_says(returncode: int) -> int:
    """The status of a process that ended by itself or of a signal: for an interrupt both are 130 to whoever runs it."""
    return returncode if returncode >= 0 else 128 - returncode


@pytest.mark.parametrize(
    ("options", "numbers", "status"),
    [
        (["--speed", "1"], [signal.SIGINT], 130),
        (["--speed", "1"], [signal.SIGTERM], 130),
        (["--speed", "1"], [signal.SIGHUP], 130),
        (["--speed", "1"], [signal.SIGINT, signal.SIGINT], 130),
        (["--speed", "10000", "--requests", "2", "--keep"], [signal.SIGINT], 0),
    ],
)
def test_an_interrupt_cleans_up(tmp_path: Path, options: list[str], numbers: list[int], status: int) -> None:
    with demo(tmp_path, *options) as process:
        assert process.stdout is not None
        last_words = "The service stays up: http://" if "--keep" in options else "its page for people: http://"
        assert any(last_words in line for line in process.stdout)
        assert services_in(tmp_path)
        for number in numbers:
            process.send_signal(number)
        _, log = process.communicate(timeout=30)
    assert as_a_shell_says(process.returncode) == status
    assert "Traceback" not in log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_the_service_starts_cleans_up(tmp_path: Path, number: int) -> None:
    with demo(tmp_path) as process:
        eventually(lambda: services_in(tmp_path), 20)
        process.send_signal(number)
        _, log = process.communicate(timeout=30)
    assert as_a_shell_says(process.returncode) == 130
    assert "Traceback" not in log
