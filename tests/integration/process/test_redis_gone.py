"""A Redis that goes away under a running service costs replays, never an answer, and comes back by itself."""

from collections.abc import Iterator

import pytest

from kvshelf_client.frames import FrameKind
from storage.clock import SystemClock
from storage.dram.ailment import Ailment
from tests.integration.process.conftest import Serve
from tests.support.asking import BOUNDARY, PROMPT, AskingEngine, asking, fill
from tests.support.engine import BLOCK, blocks, fetch, keys_of, metric, plan, register, release, store
from tests.support.redis_server import RedisServer
from tests.support.served import Served, eventually

ANSWER_SECONDS = 1.0
"""A request within this while the pool is away: 0.25 s more than without, and what a busy machine takes."""
BACK_SECONDS = 10.0


@pytest.fixture
def served(serve: Serve, redis: RedisServer) -> Served:
    """A service on the private Redis that has the prompt of three kinds of models, and their snapshots."""
    served = serve("--redis-url", redis.url)
    fill(served.http)
    return served


@pytest.fixture
def engine(served: Served) -> Iterator[AskingEngine]:
    made = AskingEngine(served.url)
    assert [made.ask(name) for name in ("ns", "full", "window")] == ["snapshot", "full_attention", "snapshot"]
    assert (made.breaker(), made.health()) == ("closed", {"status": "ok", "causes": []})
    yield made
    made.http.close()


def check_away(engine: AskingEngine, ailment: Ailment) -> None:
    """What is to be seen while the pool is away: everything answers, the state is known, nobody waits."""
    for _ in range(4):
        assert engine.ask() == "bounded_replay"
    assert engine.ask("full") == "full_attention"
    assert engine.ask("window") == "cold"
    assert engine.store_snapshot() == "lost"
    eventually(lambda: engine.breaker() == "open", 5)
    assert engine.health()["status"] == "degraded"
    assert ailment.words in engine.health()["causes"]
    assert engine.http.get("/readyz").status_code == 204
    assert metric(engine.http, 'kvshelf_tier_up{tier="dram"}') == 0
    assert metric(engine.http, 'kvshelf_health{state="degraded"}') == 1
    stats = engine.http.get("/v1/stats").json()
    assert (stats["tiers"]["ssd"]["up"], stats["tiers"]["dram"]["up"]) == (True, False)
    assert engine.longest_seconds < ANSWER_SECONDS


def wait_until_back(engine: AskingEngine) -> None:
    eventually(lambda: engine.breaker() == "closed" and engine.health()["status"] == "ok", BACK_SECONDS)


def test_stopped_and_restarted_empty(served: Served, engine: AskingEngine, redis: RedisServer) -> None:
    leased = plan(engine.http, PROMPT)
    with asking(served) as (other,):
        redis.stop()
        (fallback, _), *received = fetch(engine.http, leased)
        assert (fallback.kind, len(received)) == (FrameKind.FALLBACK, BOUNDARY // BLOCK)
        release(engine.http, leased)
        check_away(engine, Ailment.UNREACHABLE)
        redis.start()
        wait_until_back(engine)
        assert engine.ask() == "bounded_replay"
        assert plan(engine.http, PROMPT)["reasons"]["snapshot"]["reason"] in ("evicted", "never_stored")
        assert engine.store_snapshot() == "stored"
        assert engine.ask() == "snapshot"
    assert other.modes["bounded_replay"] > 0
    assert other.modes["cold"] == 0
    assert engine.longest_seconds < ANSWER_SECONDS


def test_frozen_and_going_on(served: Served, engine: AskingEngine, redis: RedisServer) -> None:
    with asking(served) as (other,):
        redis.freeze()
        check_away(engine, Ailment.TIMEOUT)
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
    engine = AskingEngine(served.url)
    assert engine.ask() == "bounded_replay"
    eventually(lambda: engine.health()["status"] == "degraded", 5)
    assert Ailment.UNREACHABLE.words in engine.health()["causes"]
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
