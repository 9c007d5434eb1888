"""Faults under load: engines hold conversations while Redis, the network, the disk and the service itself fail."""

import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random

from storage.clock import SystemClock
from tests.load.soak.account import Account, Conversation
from tests.load.soak.base import Progress, Summary, Trial, so_far
from tests.load.soak.engines import AwayError, LoadEngine, start
from tests.load.soak.stage import Stage

ENGINES = 4
LOOKED_AT = 5
"""Conversations looked at after each outage; at the end all are."""

Outage = Callable[[Stage, Random], AbstractContextManager[None]]


@contextmanager
def redis_stopped(stage: Stage, chance: Random) -> Iterator[None]:
    """It comes back empty."""
    stage.redis.stop()
    stage.proxy.cut_all()
    yield
    stage.start_redis()


@contextmanager
def redis_frozen(stage: Stage, chance: Random) -> Iterator[None]:
    stage.redis.freeze()
    yield
    stage.redis.thaw()


@contextmanager
def redis_emptied(stage: Stage, chance: Random) -> Iterator[None]:
    stage.admin.flushall()
    yield


@contextmanager
def redis_slow(stage: Stage, chance: Random) -> Iterator[None]:
    stage.proxy.delay_seconds = chance.choice([0.05, 0.15, 1.0])
    stage.proxy.trickle_bytes = chance.choice([0, 0, 8, 10_000])
    yield
    stage.proxy.delay_seconds, stage.proxy.trickle_bytes = 0.0, 0


@contextmanager
def connections_cut(stage: Stage, chance: Random) -> Iterator[None]:
    for _ in range(5):
        stage.proxy.cut_all()
        threading.Event().wait(chance.random() * 0.5)
    yield


@contextmanager
def replies_cut(stage: Stage, chance: Random) -> Iterator[None]:
    for _ in range(5):
        stage.proxy.cut_after_bytes = chance.randrange(1, 20_000)
        threading.Event().wait(chance.random() * 0.5)
    yield
    stage.proxy.cut_after_bytes = None


@contextmanager
def wrong_password(stage: Stage, chance: Random) -> Iterator[None]:
    stage.admin.config_set("requirepass", "another")
    stage.proxy.cut_all()
    yield
    stage.admin.config_set("requirepass", "")


@contextmanager
def redis_read_only(stage: Stage, chance: Random) -> Iterator[None]:
    stage.admin.replicaof("127.0.0.1", "1")
    yield
    stage.admin.replicaof("NO", "ONE")


@contextmanager
def redis_full(stage: Stage, chance: Random) -> Iterator[None]:
    """It may or may not evict."""
    stage.admin.config_set("maxmemory-policy", chance.choice(["noeviction", "allkeys-lru", "volatile-ttl"]))
    stage.admin.config_set("maxmemory", stage.admin.info("memory")["used_memory"])
    yield
    stage.admin.config_set("maxmemory", 0)


@contextmanager
def disk_refusing_writes(stage: Stage, chance: Random) -> Iterator[None]:
    with stage.disk_refusing_writes(chance.choice([64 << 10, 4 << 20, 32 << 20])):
        yield


@contextmanager
def blocks_damaged(stage: Stage, chance: Random) -> Iterator[None]:
    for _ in range(3):
        if stage.damage_a_block(chance):
            stage.account.count("blocks damaged on disk")
    yield


@contextmanager
def service_killed(stage: Stage, chance: Random) -> Iterator[None]:
    stage.account.took("start after a kill", stage.kill_service())
    yield


@contextmanager
def service_stopped(stage: Stage, chance: Random) -> Iterator[None]:
    stage.account.took("stop and start", stage.restart_service(signal.SIGTERM))
    yield


OUTAGES: tuple[Outage, ...] = (
    redis_stopped,
    redis_frozen,
    redis_emptied,
    redis_slow,
    connections_cut,
    replies_cut,
    wrong_password,
    redis_read_only,
    redis_full,
    disk_refusing_writes,
    blocks_damaged,
    service_killed,
    service_stopped,
)
DURING: tuple[Outage, ...] = (service_killed, connections_cut, blocks_damaged)
"""What may happen in the midst of another outage."""


class Faults:
    """Engines under load, and one outage after the other."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage, self.account = stage, stage.account
        self.chance = Random(seed)
        self._stop = threading.Event()
        self._eye = LoadEngine(stage.service, self.account, Random(seed), ENGINES)
        engines = [LoadEngine(stage.service, self.account, Random(seed * 100 + n), n) for n in range(ENGINES)]
        self._join = start(engines, self._stop)
        self._turn: list[Outage] = []

    def outage(self) -> str:
        """Let something break for some seconds, see that all is well again by itself, and look at some records."""
        if not self._turn:  # All of them, in another order each time.
            self._turn = self.chance.sample(OUTAGES, len(OUTAGES))
        outage = self._turn.pop()
        pause, seconds = threading.Event(), self.chance.uniform(1.0, 6.0)
        with outage(self.stage, self.chance):
            pause.wait(seconds / 2)
            if self.chance.random() < 0.3:
                with self.chance.choice(DURING)(self.stage, self.chance):
                    self.account.count("two faults at once")
            pause.wait(seconds / 2)
        name = outage.__name__.replace("_", " ")
        self.account.count(name)
        try:
            self.stage.wait_until_well()
        except AssertionError:
            self.account.is_wrong(f"not well again after {name}: {self.stage.served.http.get('/healthz').json()}")
        conversations = self.account.conversations()
        for conversation in self.chance.sample(conversations, min(LOOKED_AT, len(conversations))):
            self._look(conversation)
        pause.wait(self.chance.uniform(0.5, 2.0))
        return name

    def end_load(self) -> None:
        """Let the engines finish what they do."""
        self._stop.set()
        self._join()

    def finish(self, progress: Callable[[str], None]) -> Summary:
        """Kill the service a last time, and look at everything that was ever acknowledged."""
        self.stage.kill_service()
        conversations = self.account.conversations()
        for number, conversation in enumerate(conversations):
            self._look(conversation)
            progress(f"looking at conversation {number} of {len(conversations)}")
        self._eye.close()
        self.account.count("conversations looked at in the end", len(conversations))
        self.account.count("blocks looked at in the end", sum(map(len, map(self.account.promised, conversations))))
        return Summary(self.account.tried, self.account.wrong, self.account.figures())

    def _look(self, conversation: Conversation) -> None:
        """Whatever was acknowledged and not damaged by us must be there.

        What is promised is known before: a damaged block that is missed may be stored again before the next line.
        """
        promised = self.account.promised(conversation)
        try:
            there = self._eye.look(conversation)
        except AwayError:
            self.account.is_wrong(f"the service cannot be asked for {conversation.name}")
            return
        lost = [key for key in promised if key not in there]
        if lost:
            self.account.is_wrong(f"lost of {conversation.name}: {[key.hex()[:12] for key in lost]}")


def run(count: int, seed: int, progress: Progress) -> Summary:
    """Let things break for ``count`` seconds."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="kvshelf-outages-") as directory:
        stage = Stage(Path(directory), Account())
        try:
            faults, started = Faults(stage, seed), clock.monotonic()
            try:
                while (done := clock.monotonic() - started) < count:
                    progress(round(done), f"last: {faults.outage()}; {so_far(faults.account.wrong)}")
            finally:
                faults.end_load()
            return faults.finish(lambda words: progress(count, words))
        finally:
            stage.close()


TRIAL = Trial(
    name="outages",
    about="an hour in which Redis, the network, the disk and the service fail under load costs misses, nothing else",
    unit="seconds",
    full=3600,
    run=run,
)
