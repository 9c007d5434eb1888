"""Real Redis servers for tests: private ones that can be stopped and frozen, and the one to run the contract on."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from storage.clock import SystemClock

BINARY_VARIABLE = "KVSHELF_TEST_REDIS_SERVER"
URL_VARIABLE = "KVSHELF_TEST_REDIS_URL"
_START_SECONDS = 20.0


def redis_binary() -> str:
    """The redis-server to start private servers with; fails the test when there is none."""
    named = os.environ.get(BINARY_VARIABLE)
    found = shutil.which(named or "redis-server")
    if not found:
        where = f"{BINARY_VARIABLE} names {named!r}, which is no program" if named else "redis-server is not in PATH"
        pytest.fail(
            f"No Redis for this test: {where}. Install it (Debian: apt-get install redis-server) or set "
            f"{BINARY_VARIABLE} to the path of a redis-server. Tests that stop nothing also run on a server that is "
            f"already there: set {URL_VARIABLE}=redis://host:port/db; they use keys of their own and remove them.",
            pytrace=False,
        )
    return found


def running_redis_url() -> str | None:
    """The URL of a Redis that is already there, if the environment names one."""
    return os.environ.get(URL_VARIABLE) or None


class RedisServer:
    """A private redis-server on a free loopback port, with a directory of its own and nothing kept on disk.

    Args:
        maxmemory_bytes: 0 for no limit.
        policy: what it evicts when that is used up.
        password: asked of everybody when given, or of that ``user``.
        user: whom the configuration knows by that password.
        configuration: a file that is read before all options.
        options: further ones of redis-server.
        host: the address it listens on.
        within: the command that runs it somewhere else, as in a network namespace.
    """

    def __init__(
        self,
        *,
        maxmemory_bytes: int = 0,
        policy: str = "noeviction",
        password: str = "",
        user: str = "",
        configuration: Path | None = None,
        options: Sequence[str] = (),
        host: str = "127.0.0.1",
        within: Sequence[str] = (),
    ) -> None:
        self._binary = redis_binary()
        own = ["--maxmemory", str(maxmemory_bytes), "--maxmemory-policy", policy]
        self._options = [] if configuration else own
        self._options += ["--requirepass", password] if password and not user else []
        self._options += options
        self._password = password
        self._user = user
        self._configuration = [str(configuration)] if configuration else []
        self.host = host
        self._within = within
        self._directory = Path(tempfile.mkdtemp(prefix="kvshelf-redis-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        try:
            self.start()
        except BaseException:  # An interrupt, above all.
            self.close()
            raise

    @property
    def url(self) -> str:
        """Where it is, over TCP, with its password."""
        return self.url_with(self._password)

    def url_with(self, password: str) -> str:
        """Where it is, over TCP, with any password."""
        return (
            f"redis://{self._user}:{password}@{self.host}:{self.port}/0"
            if password
            else f"redis://{self.host}:{self.port}/0"
        )

    @property
    def unix_url(self) -> str:
        """Where it is, over its UNIX socket."""
        credentials = f":{self._password}@" if self._password else ""
        return f"unix://{credentials}{self._directory}/redis.sock?db=0"

    def client(self) -> "Redis":
        """A client to look and meddle behind the tier's back. Close it."""
        return Redis.from_url(self.url, protocol=2)

    def start(self) -> None:
        """Start it, empty; after :meth:`stop` on the same port again."""
        clock, deadline = SystemClock(), SystemClock().monotonic() + _START_SECONDS
        while clock.monotonic() < deadline:
            self.port = self.port or self._pick_port()
            self._process = self._spawn(self._options)
            if self._is_ready(deadline):
                return
            self.port = 0  # somebody else took it
        raise TimeoutError(f"redis-server did not start: {(self._directory / 'log').read_text()[-2000:]}")

    def stop(self) -> None:
        """End it at once; everything in it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop its process where it is: connections stay open, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop it and remove its directory."""
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _pick_port(self) -> int:
        return free_port()

    def _signal(self, number: int) -> None:
        assert self._process is not None, "the server is not running"
        self._process.send_signal(number)

    def _spawn(self, options: Sequence[str]) -> subprocess.Popen[bytes]:
        directory = self._directory
        command = f"--bind {self.host} --protected-mode no --port {self.port}"
        command += f" --unixsocket {directory}/redis.sock"
        command += f" --dir {directory} --logfile {directory}/log --appendonly no --save"
        return subprocess.Popen(
            [*self._within, self._binary, *self._configuration, *command.split(), "", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def _is_ready(self, deadline: float) -> bool:
        assert self._process is not None
        pause = threading.Event()
        with self.client() as client:
            while SystemClock().monotonic() < deadline and self._process.poll() is None:
                try:
                    if client.info("server")["process_id"] == self._process.pid:
                        return True
                except RedisError:
                    pass
                pause.wait(0.01)
        self.stop()
        return False


def free_port() -> int:
    """A loopback port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def read_bytes(client: "Redis", key: str | bytes, start: int = 0, end: int = -1) -> bytes:
    """Bytes ``start..end`` (inclusive, as Redis counts) of a value, empty when it is not there."""
    value = client.getrange(key, start, end)
    assert isinstance(value, bytes)
    return value


def let_time_pass(client: "Redis", prefix: str, seconds: float) -> None:
    """Make every key under ``prefix`` as old as if ``seconds`` had passed: shorten what it has left to live."""
    for key in client.scan_iter(match=f"{prefix}*", count=1000):
        left_ms = client.pttl(key) - round(seconds * 1000)
        if left_ms > 0:
            client.pexpire(key, left_ms)
        else:
            client.unlink(key)


def remove_keys(client: "Redis", prefix: str) -> None:
    """Remove every key under ``prefix``."""
    for key in client.scan_iter(match=f"{prefix}*", count=1000):
        client.unlink(key)
