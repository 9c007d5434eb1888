"""A cluster as the pool of a running service: parts of it go away under load, and no engine is told of an error."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.integration.process.conftest import Serve
from tests.support.asking import AskingEngine, asking, fill
from tests.support.engine import BLOCK, blocks, keys_of, plan, release, snapshot, store, tokens
from tests.support.redis_cluster import NetworkApart, RedisCluster
from tests.support.served import Served, eventually

BOUNDARY = 3 * BLOCK
AGAIN_SECONDS = 5.0


@pytest.fixture
def apart() -> Iterator[NetworkApart]:
    apart = NetworkApart()
    yield apart
    apart.close()


@pytest.fixture
def cluster(apart: NetworkApart) -> Iterator[RedisCluster]:
    cluster = RedisCluster(apart=apart)
    yield cluster
    cluster.close()


def prompt_of(number: int) -> bytes:
    """A prompt that shares nothing with those of other numbers."""
    return (10_000 + number).to_bytes(4, "little") + tokens(3 * BLOCK + 200)[4:]


def spread(served: Served, count: int) -> None:
    """Store prompts with a snapshot each."""
    for number in range(count):
        keys = keys_of(served.http, prompt_of(number))
        counts = store(served.http, blocks(keys[:3]) + snapshot(keys, BOUNDARY))["counts"]
        assert counts == {"stored": 4}


def modes(served: Served, count: int) -> list[str]:
    """How each of the prompts resumes."""
    found = []
    for number in range(count):
        planned = plan(served.http, prompt_of(number))
        release(served.http, planned)
        found.append(str(planned["plan"]["mode"]))
    return found


def test_a_master_is_cut_off_and_comes_back(serve: Serve, cluster: RedisCluster, apart: NetworkApart) -> None:
    served = serve("--redis-url", cluster.url)
    fill(served.http)
    count = 24
    spread(served, count)
    assert modes(served, count) == ["snapshot"] * count
    for server in cluster.masters():
        with server.client() as client:
            client.wait(1, 2000)
    with asking(served, engines=2) as engines:
        apart.cut()
        seen = set(modes(served, count))
        assert seen <= {"snapshot", "bounded_replay"}
        assert "bounded_replay" in seen, "the cut-off master has some of the snapshots"
        cluster.wait_until_whole()
        eventually(lambda: modes(served, count) == ["snapshot"] * count, AGAIN_SECONDS)
        apart.heal()
        cluster.wait_until_whole()
        eventually(lambda: served.http.get("/healthz").json()["status"] == "ok", AGAIN_SECONDS)
        assert modes(served, count) == ["snapshot"] * count
    assert all(engine.modes["cold"] == 0 for engine in engines)
    assert sum(sum(engine.modes.values()) for engine in engines) > 0


def test_without_a_majority_every_snapshot_is_a_miss_and_nothing_fails(
    serve: Serve, cluster: RedisCluster, apart: NetworkApart
) -> None:
    served = serve("--redis-url", cluster.url)
    fill(served.http)
    others = [server for server in cluster.masters() if server.host != apart.far]
    with asking(served) as (engine,), closing(AskingEngine(served.url)) as probe:
        apart.cut()
        for server in others:
            server.freeze()
        eventually(lambda: probe.ask() == "bounded_replay", AGAIN_SECONDS)
        assert served.http.get("/healthz").json()["status"] == "degraded"
        for server in others:
            server.thaw()
        apart.heal()
        cluster.wait_until_whole()
        eventually(lambda: probe.ask() == "snapshot", AGAIN_SECONDS)
    assert engine.modes["bounded_replay"] > 0
    assert engine.modes["cold"] == 0
