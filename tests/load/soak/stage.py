"""What the faults under load happen to: a service in a process of its own, its Redis, and the network in between."""

import mmap
import resource
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

from redis import Redis

from tests.load.soak.account import Account
from tests.load.soak.engines import Service
from tests.support.engine import register
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer
from tests.support.served import Served, eventually

NAME = "soak"
BUDGET_BYTES = 8 << 30
"""Ample: nothing is evicted, so whatever was acknowledged must be there."""
BACK_SECONDS = 20.0
_BYTES_PER_TOKEN = 24
"""Blocks of 3,072 bytes: a page on disk each."""


class Stage:
    """A running service behind everything that can break. Close it."""

    def __init__(self, directory: Path, account: Account) -> None:
        self.account = account
        with ExitStack() as closing:  # What was started is taken down when the rest cannot be.
            self.redis = RedisServer()
            closing.callback(self.redis.close)
            self.admin: Redis = self.redis.client()
            """A client that stays logged in whatever becomes of the password."""
            closing.callback(self.admin.close)
            self.proxy = Proxy(self.redis.port)
            closing.callback(self.proxy.close)
            budget = str(BUDGET_BYTES)
            self.served = Served(directory, "--redis-url", self.proxy.url, KVSHELF_STORE__BUDGET_BYTES=budget)
            closing.callback(self.served.close)
            self.served.start()
            sizes = register(self.served.http, NAME, bytes_per_token=_BYTES_PER_TOKEN)
            self.service = Service(self.served.url, NAME, sizes)
            self._closing = closing.pop_all()

    def close(self) -> None:
        """Stop all of it."""
        self._closing.close()

    def start_redis(self) -> None:
        """Start Redis again, empty."""
        self.redis.start()
        self.proxy.aim(self.redis.port)

    def start_service(self) -> float:
        """Start the service again; returns the seconds until it was ready."""
        seconds = self.served.start()
        self.service.url = self.served.url
        return seconds

    def wait_until_well(self) -> None:
        """The service comes back to full health by itself. Raises AssertionError where it does not."""

        def is_well() -> bool:
            return bool(self.served.http.get("/healthz").json()["status"] == "ok")

        eventually(is_well, BACK_SECONDS, 0.1)

    @contextmanager
    def disk_refusing_writes(self, limit_bytes: int) -> Iterator[None]:
        """No file of the service may be written beyond that offset: writes of segments and index fail."""
        process = self.served.server.process
        usual = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit_bytes, usual[1]))
        try:
            yield
        finally:
            if process.poll() is None:
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, usual)

    def damage_a_block(self, chance: Random) -> bool:
        """Flip bits of one acknowledged block on the disk; False when it is not found there."""
        conversations = self.account.conversations()
        promised = self.account.promised(chance.choice(conversations)) if conversations else []
        if not promised:
            return False
        key = chance.choice(promised)
        for path in (self.served.data_dir / "segments").iterdir():
            with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
                at = data.find(key[:24])  # What a record's id holds of its block key.
                if at >= 0:
                    self.account.damage(key)
                    place = at + 200 + chance.randrange(2000)
                    data[place] ^= 1 << chance.randrange(8)
                    return True
        return False

    def restart_service(self, number: int) -> float:
        """End the service by a signal and start it again."""
        self.served.signal(number)
        self.served.wait(30)
        return self.start_service()

    def kill_service(self) -> float:
        """Kill -9 and start again."""
        return self.restart_service(signal.SIGKILL)
