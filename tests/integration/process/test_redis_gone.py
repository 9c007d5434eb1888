"""A Redis that goes away under a running service costs replays, never an answer, and comes back by itself."""

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from kvshelf_client.frames import FrameKind
from storage.clock import SystemClock
from tests.integration.process.conftest import Serve
from tests.support.engine import BLOCK, blocks, fetch, frame, keys_of, metric, plan, register, release, snapshot, store
from tests.support.engine import tokens as prompt_of
from tests.support.redis_server import RedisServer
from tests.support.served import Served, eventually

PROMPT = prompt_of(1000)
BOUNDARY = 768
"""The deepest boundary at which a snapshot of the prompt is of use."""
ANSWER_SECONDS = 2.0
"""A plan and its fetch within this while the pool is away: steps that wait 0.2 s for Redis, and a busy machine."""
BACK_SECONDS = 10.0
POOL_CAUSE = "the DRAM pool does not serve: snapshots are misses, and plans replay or rebuild"


class Engine:
    """An engine that asks for one prompt again and again; nothing it does may fail or take long."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=30)
        self.longest_seconds = 0.0
        self.modes: Counter[str] = Counter()

    def ask(self, name: str = "ns") -> str:
        """Plan, fetch, release; returns the mode."""
        clock = SystemClock()
        started = clock.monotonic()
        planned = plan(self.http, PROMPT, name)
        received = fetch(self.http, planned)
        release(self.http, planned)
        self.longest_seconds = max(self.longest_seconds, clock.monotonic() - started)
        assert received or planned["plan"]["mode"] == "cold"
        assert all(header.miss is None for header, _ in received)
        mode = str(planned["plan"]["mode"])
        self.modes[mode] += 1
        return mode

    def store_snapshot(self) -> str:
        """Store the prompt's snapshot; the outcome."""
        answer = store(self.http, snapshot(keys_of(self.http, PROMPT), BOUNDARY))
        return str(answer["outcomes"][0]["outcome"])

    def breaker(self) -> str:
        """The breaker's state by its metric."""
        text = self.http.get("/metrics").text
        (state,) = re.findall(r'(?m)^kvshelf_breaker_state\{state="(\w+)"\} 1\.0$', text)
        return str(state)

    def health(self) -> dict[str, Any]:
        document: dict[str, Any] = self.http.get("/healthz").json()
        return document


@contextmanager
def asking(served: Served) -> Iterator[Engine]:
    """Another engine that asks all the time, in a thread; what went wrong there is raised at the end."""
    engine, stop, trouble = Engine(served.url), threading.Event(), []

    def ask() -> None:
        try:
            while not stop.is_set():
                engine.ask()
        except (AssertionError, httpx.HTTPError) as error:
            trouble.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield engine
    finally:
        stop.set()
        thread.join(30)
        engine.http.close()
    assert not trouble, trouble
    assert engine.longest_seconds < ANSWER_SECONDS


@pytest.fixture
def served(serve: Serve, redis: RedisServer) -> Served:
    """A service on the private Redis that has the prompt of three kinds of models, and their snapshots."""
    served = serve("--redis-url", redis.url)
    for name, profile in (
        ("ns", "deepseek-v4.1-flash/fp4"),
        ("full", "llama-3-8b/bf16"),
        ("window", "gpt-oss-20b/bf16"),
    ):
        sizes = register(served.http, name, profile=profile)
        keys = keys_of(served.http, PROMPT, name)
        at = BOUNDARY // BLOCK - 1
        frames = [frame(key, (number + 1) * BLOCK) for number, key in enumerate(keys)]
        if sizes["snapshot_bytes"]:
            payload = bytes(sizes["snapshot_bytes"])
            frames.append(frame(keys[at], BOUNDARY, kind=FrameKind.SNAPSHOT, payload=payload))
        counts = store(served.http, b"".join(frames), name)["counts"]
        assert counts == {"stored": len(frames)}
    return served


@pytest.fixture
def engine(served: Served) -> Iterator[Engine]:
    made = Engine(served.url)
    assert [made.ask(name) for name in ("ns", "full", "window")] == ["snapshot", "full_attention", "snapshot"]
    assert (made.breaker(), made.health()) == ("closed", {"status": "ok", "causes": []})
    yield made
    made.http.close()


def check_away(engine: Engine) -> None:
    """What is to be seen while the pool is away: everything answers, the state is known, nobody waits."""
    for _ in range(4):
        assert engine.ask() == "bounded_replay"
    assert engine.ask("full") == "full_attention"
    assert engine.ask("window") == "cold"
    assert engine.store_snapshot() == "lost"
    eventually(lambda: engine.breaker() == "open", 5)
    assert engine.health() == {"status": "degraded", "causes": [POOL_CAUSE]}
    assert engine.http.get("/readyz").status_code == 204
    assert metric(engine.http, 'kvshelf_tier_up{tier="dram"}') == 0
    assert metric(engine.http, 'kvshelf_health{state="degraded"}') == 1
    stats = engine.http.get("/v1/stats").json()
    assert (stats["tiers"]["ssd"]["up"], stats["tiers"]["dram"]["up"]) == (True, False)
    assert engine.longest_seconds < ANSWER_SECONDS


def wait_until_back(engine: Engine) -> None:
    eventually(lambda: engine.breaker() == "closed" and engine.health()["status"] == "ok", BACK_SECONDS)


def test_stopped_and_restarted_empty(served: Served, engine: Engine, redis: RedisServer) -> None:
    leased = plan(engine.http, PROMPT)
    with asking(served) as other:
        redis.stop()
        (fallback, _), *received = fetch(engine.http, leased)
        assert (fallback.kind, len(received)) == (FrameKind.FALLBACK, BOUNDARY // BLOCK)
        release(engine.http, leased)
        check_away(engine)
        redis.start()
        wait_until_back(engine)
        assert engine.ask() == "bounded_replay"
        assert plan(engine.http, PROMPT)["reasons"]["snapshot"]["reason"] in ("evicted", "never_stored")
        assert engine.store_snapshot() == "stored"
        assert engine.ask() == "snapshot"
    assert other.modes["bounded_replay"] > 0
    assert other.modes["cold"] == 0
    assert engine.longest_seconds < ANSWER_SECONDS


def test_frozen_and_going_on(served: Served, engine: Engine, redis: RedisServer) -> None:
    with asking(served) as other:
        redis.freeze()
        check_away(engine)
        redis.thaw()
        wait_until_back(engine)
        assert engine.ask() == "snapshot"
    assert other.modes["bounded_replay"] > 0
    assert metric(engine.http, 'kvshelf_tier_faults_total{kind="timeout",tier="dram"}') > 0


def test_away_from_the_start(serve: Serve, redis: RedisServer) -> None:
    redis.stop()
    served = serve("--redis-url", redis.url)
    register(served.http)
    store(served.http, blocks(keys_of(served.http, PROMPT)))
    engine = Engine(served.url)
    assert engine.ask() == "bounded_replay"
    assert eventually(lambda: engine.health()["status"] == "degraded" and engine.health()["causes"], 5) == [POOL_CAUSE]
    redis.start()
    wait_until_back(engine)
    assert engine.store_snapshot() == "stored"
    assert engine.ask() == "snapshot"
    engine.http.close()


def test_a_stop_does_not_wait_for_a_redis_that_is_frozen(served: Served, redis: RedisServer) -> None:
    redis.freeze()
    clock = SystemClock()
    started = clock.monotonic()
    assert served.stop() == 0
    assert clock.monotonic() - started < 5
