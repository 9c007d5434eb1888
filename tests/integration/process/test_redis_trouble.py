"""Redis in every kind of trouble under a running service: each request keeps to its budget, and the cause is told."""

from collections.abc import Callable, Iterator

import pytest

from kvshelf_client.frames import FrameKind
from storage.clock import SystemClock
from storage.dram.ailment import Ailment
from tests.integration.process.conftest import Serve
from tests.support.asking import BOUNDARY, PROMPT, AskingEngine, asking, fill
from tests.support.engine import fetch, metric, plan, release, tokens
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer
from tests.support.served import Served, eventually

BUDGET_SECONDS = 0.25
SLACK_SECONDS = 0.5
"""What a busy machine takes on top of the budget and of what a request took without trouble."""
BACK_SECONDS = 15.0
DOWN = "the DRAM pool does not serve: snapshots are misses, and plans replay or rebuild"


@pytest.fixture
def proxy(redis: RedisServer) -> Iterator[Proxy]:
    """What stands between the service and its Redis."""
    with Proxy(redis.port) as made:
        yield made


@pytest.fixture
def served(serve: Serve, proxy: Proxy) -> Served:
    """A service on Redis behind the proxy, with something in it."""
    served = serve("--redis-url", proxy.url)
    fill(served.http)
    return served


@pytest.fixture
def engine(served: Served) -> Iterator[AskingEngine]:
    made = AskingEngine(served.url)
    for _ in range(10):
        assert made.ask() == "snapshot"
    yield made
    made.http.close()


def check_trouble(engine: AskingEngine, ailment: Ailment, requests: int = 25) -> None:
    """Every request is answered in time, by a plan that needs no snapshot; the breaker opens, the cause is told."""
    without_seconds, engine.longest_seconds = engine.longest_seconds, 0.0
    modes = [engine.ask() for _ in range(requests)]
    assert "cold" not in modes
    eventually(lambda: engine.ask() == "bounded_replay" and engine.breaker() == "open", 5)
    assert engine.store_snapshot() == "lost"
    assert engine.health() == {"status": "degraded", "causes": [DOWN, ailment.words]}
    assert metric(engine.http, f'kvshelf_tier_faults_total{{kind="{ailment}",tier="dram"}}') > 0
    assert engine.longest_seconds < without_seconds + BUDGET_SECONDS + SLACK_SECONDS


def check_back(engine: AskingEngine, mode: str = "snapshot") -> None:
    """By itself the breaker closes and health is well again."""
    eventually(lambda: engine.breaker() == "closed" and engine.health()["status"] == "ok", BACK_SECONDS)
    assert engine.ask() == mode


def late(proxy: Proxy) -> None:
    """Later than one round may take."""
    proxy.delay_seconds = 1.0


def slow(proxy: Proxy) -> None:
    """Each round is in time, a request with its rounds is not."""
    proxy.delay_seconds = 0.15


def trickling(proxy: Proxy) -> None:
    """Something always comes, and it takes for ever."""
    proxy.delay_seconds, proxy.trickle_bytes = 0.05, 8


@pytest.mark.parametrize("make_slow", [late, slow, trickling])
def test_slow(engine: AskingEngine, proxy: Proxy, make_slow: Callable[[Proxy], None]) -> None:
    make_slow(proxy)
    check_trouble(engine, Ailment.TIMEOUT)
    proxy.delay_seconds, proxy.trickle_bytes = 0.0, 0
    check_back(engine)


def test_cut_in_the_middle_of_a_reply(engine: AskingEngine, proxy: Proxy) -> None:
    planned = plan(engine.http, PROMPT)
    assert planned["plan"]["mode"] == "snapshot"
    proxy.cut_after_bytes = 1000
    (fallback, _), *received = fetch(engine.http, planned)
    assert fallback.kind is FrameKind.FALLBACK
    assert {header.kind for header, _ in received} == {FrameKind.BLOCK}
    release(engine.http, planned)
    assert engine.ask() == "snapshot"
    check_back(engine)


def test_every_connection_cut_again_and_again(served: Served, engine: AskingEngine, proxy: Proxy) -> None:
    without_seconds = engine.longest_seconds
    with asking(served, engines=3) as others:
        for _ in range(30):
            proxy.cut_all()
            engine.ask()
    assert sum(other.modes.total() for other in others) > 0
    longest = max(one.longest_seconds for one in (engine, *others))
    assert longest < without_seconds + BUDGET_SECONDS + SLACK_SECONDS
    check_back(engine)


def test_wrong_password(served: Served, engine: AskingEngine, redis: RedisServer, proxy: Proxy) -> None:
    with redis.client() as client:
        client.config_set("requirepass", "pa55word")
        proxy.cut_all()
        check_trouble(engine, Ailment.DENIED)
        log = served.log_path.read_text()
        assert "pa55word" not in log
        assert "denied" in served.http.get("/metrics").text
        client.config_set("requirepass", "")
    check_back(engine)


def test_read_only_as_after_a_failover(engine: AskingEngine, redis: RedisServer, proxy: Proxy) -> None:
    with redis.client() as client:
        client.replicaof("127.0.0.1", "1")
        assert engine.store_snapshot(BOUNDARY - 128) == "lost"
        connections = len(proxy.accepted_at)
        assert [engine.ask() for _ in range(20)] == ["snapshot"] * 20
        assert engine.health() == {"status": "degraded", "causes": [Ailment.REFUSED.words]}
        assert len(proxy.accepted_at) - connections < 5
        client.replicaof("NO", "ONE")
    check_back(engine)
    assert engine.store_snapshot(BOUNDARY - 128) == "stored"


def test_full_without_eviction(engine: AskingEngine, redis: RedisServer) -> None:
    with redis.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"])
        assert engine.store_snapshot(BOUNDARY - 128) == "refused"
        assert engine.ask() == "snapshot"
        assert engine.health() == {"status": "degraded", "causes": [Ailment.FULL.words]}
        assert engine.breaker() == "closed"
        client.config_set("maxmemory", 0)
    check_back(engine)
    assert engine.store_snapshot(BOUNDARY - 128) == "stored"


def test_full_with_eviction(engine: AskingEngine, redis: RedisServer) -> None:
    with redis.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("maxmemory", client.info("memory")["used_memory"] + (1 << 20))
        outcomes = [engine.store_snapshot(1024, tokens(1200, seed)) for seed in range(1, 600)]
        assert set(outcomes) == {"stored"}
        assert client.info("stats")["evicted_keys"] > 0
    assert engine.health()["status"] == "ok"
    assert engine.ask() in ("snapshot", "bounded_replay")


def test_no_storm_of_connections(served: Served, engine: AskingEngine, redis: RedisServer, proxy: Proxy) -> None:
    """Whatever the load, nearly all requests are answered without a try, and tries are ever further apart."""
    clock = SystemClock()
    with asking(served, engines=8) as others:
        redis.stop()
        proxy.cut_all()
        stopped_at = clock.monotonic()
        eventually(lambda: clock.monotonic() - stopped_at > 6, 10)
        tries = [at - stopped_at for at in proxy.accepted_at if at > stopped_at]
        redis.start()
        check_back(engine, mode="bounded_replay")
    assert sum(other.modes["bounded_replay"] for other in others) > 100
    probes = [at for at in tries if at > 1.0]
    assert len(tries) < 25
    assert 1 <= len(probes) <= 6
