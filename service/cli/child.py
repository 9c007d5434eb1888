"""A service in a process of its own, for commands that need one to talk to."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import IO

from service.cli.errors import CommandError

START_SECONDS = 30.0
STOP_SECONDS = 30.0
INTERRUPTED = 130
"""The exit status of a command that was interrupted."""
_URL = re.compile(r"kvshelf serves on (\S+)")


class ServerProcess:
    """``kvshelf serve`` as a child process. Once it is entered ``said`` is the line it printed, ``url`` where it is.

    Args:
        options: command-line options of ``kvshelf serve``.
        environment: variables on top of this process's own, whose settings of kvshelf are left out.
        stderr: where its log goes; this process's standard error by default.

    Raises:
        CommandError: on entering, when it does not start.
    """

    def __init__(
        self,
        options: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> None:
        self._options = list(options)
        inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith("KVSHELF_")}
        self._environment = {**inherited, **(environment or {})}
        self._stderr = stderr
        self._process: subprocess.Popen[bytes] | None = None
        self.url = self.said = ""

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The child; raises ValueError before it was started."""
        if self._process is None:
            raise ValueError("the server was not started")
        return self._process

    def start(self) -> None:
        """Start it and wait until it answers; raises CommandError."""
        # -P: a directory called `service` where the user happens to be is not this package.
        command = [sys.executable, "-P", "-m", "service.cli.main", "serve", *self._options]
        # A session of its own, so that a Ctrl-C meant for the parent does not stop the child first.
        try:
            with _interrupts_held():
                self._process = subprocess.Popen(
                    command, env=self._environment, stdout=subprocess.PIPE, stderr=self._stderr, start_new_session=True
                )
            self.said = self._read_line(self._process)
            self.url = _url_in(self.said)
        except BaseException:  # Nobody else stops a child whose start was interrupted, or went wrong.
            if self._process is not None:
                self.stop()
            raise

    def stop(self) -> int:
        """Ask it to stop and wait; returns its exit status. One that does not stop in time is killed.

        An interrupt of the wait kills it at once.
        """
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.process.kill()
            self.process.wait()
            if self.process.stdout:
                self.process.stdout.close()
        return self.process.returncode

    def _read_line(self, process: subprocess.Popen[bytes]) -> str:
        """The line it prints once it answers; empty when it ends without, or takes too long and is killed."""
        watchdog = threading.Timer(START_SECONDS, process.kill)
        watchdog.daemon = True  # An interrupt at a bad moment leaves it running; nobody is to wait for it then.
        try:
            watchdog.start()
            return process.stdout.readline().decode().rstrip("\n") if process.stdout else ""
        finally:
            watchdog.cancel()

    def kill(self) -> None:
        """Kill it at once, as a crash would."""
        self.process.kill()
        self.stop()

    def __enter__(self) -> "ServerProcess":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _url_in(line: str) -> str:
    found = _URL.match(line)
    if found is None:
        raise CommandError("the service did not start; its log above says why")
    return found.group(1)


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """SIGTERM, and a terminal that is closed, are as good as Ctrl-C: no service and no directory is left behind."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    earlier = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """SIGINT and SIGTERM arrive a moment later: one between a child's start and the note of it would orphan it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    earlier = {number: signal.signal(number, lambda number, _: held.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
    if held:
        signal.raise_signal(held[0])
