"""The service as people run it: ``kvshelf serve`` in a process of its own, on one data directory, killed or stopped."""

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx

from service.cli.child import ServerProcess
from storage.clock import SystemClock

SMALL_BUDGET_BYTES = 512 << 20

_Answer = TypeVar("_Answer")


class Served:
    """One data directory, served as often as a test likes; the log of all its processes is kept.

    Args:
        directory: has the data directory and the log.
        options: flags of ``kvshelf serve`` beyond ``--port 0 --data-dir``.
        settings: environment variables, such as ``KVSHELF_STORE__TTL_SECONDS``.
    """

    def __init__(self, directory: Path, *options: str, **settings: str) -> None:
        self.data_dir = directory / "data"
        self.log_path = directory / "log"
        self._options = options
        self._trust: ssl.SSLContext | bool = True
        self.settings = {"KVSHELF_STORE__BUDGET_BYTES": str(SMALL_BUDGET_BYTES), **settings}
        self._server: ServerProcess | None = None
        self._http: httpx.Client | None = None

    def trust(self, authority: Path) -> None:
        """Let clients expect TLS, and trust the authority of that file."""
        self._trust = ssl.create_default_context(cafile=str(authority))

    @property
    def server(self) -> ServerProcess:
        """The process that was started last."""
        assert self._server is not None, "the service was not started"
        return self._server

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.server.url

    @property
    def port(self) -> int:
        """The port of it."""
        return int(self.url.rpartition(":")[2])

    @property
    def http(self) -> httpx.Client:
        """A client of it."""
        assert self._http is not None, "the service was not started"
        return self._http

    def start(self) -> float:
        """Start it, once more when it has ended; returns the seconds to the first answer of ``/readyz``."""
        self._let_go()
        clock, options = SystemClock(), ["--port", "0", "--data-dir", str(self.data_dir), *self._options]
        with self.log_path.open("ab") as log:
            self._server = ServerProcess(options, environment=self.settings, stderr=log)
            started = clock.monotonic()
            self._server.start()
        self._http = httpx.Client(base_url=self.url, timeout=30, verify=self._trust)
        assert self._http.get("/readyz").status_code == 204
        return clock.monotonic() - started

    def stop(self) -> int:
        """Ask it to stop; returns its exit status."""
        return self.server.stop()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.server.process.send_signal(number)

    def wait(self, seconds: float = 20) -> int:
        """Wait for its end; returns its exit status."""
        return self.server.process.wait(seconds)

    def kill(self) -> None:
        """Kill -9."""
        self.server.kill()

    def log(self) -> list[dict[str, Any]]:
        """What it logged, one object a line; anything else there is an error."""
        lines = [json.loads(line) for line in self.log_path.read_text().splitlines()]
        assert all({"event", "level", "timestamp"} <= set(line) for line in lines)
        return lines

    def close(self) -> None:
        """Kill what still runs, and check that the log is a log."""
        self._let_go()
        if self._server is not None:
            self.log()

    def _let_go(self) -> None:
        if self._http is not None:
            self._http.close()
        if self._server is not None:
            self._server.kill()


def eventually(condition: Callable[[], _Answer], within_seconds: float, every_seconds: float = 0.02) -> _Answer:
    """Wait until a condition of another process holds; returns what it came to."""
    clock, pause = SystemClock(), threading.Event()
    deadline = clock.monotonic() + within_seconds
    while not (answer := condition()):
        assert clock.monotonic() < deadline, f"it did not come to pass within {within_seconds} s"
        pause.wait(every_seconds)
    return answer


def kvshelf(*arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of kvshelf to its end in a process of its own."""
    command = [sys.executable, "-P", "-m", "service.cli.main", *arguments]
    environment = {**os.environ, **settings}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
