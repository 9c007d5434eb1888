"""Two nodes that share their global KV in a Redis cluster: what one stores the other serves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.process.conftest import Serve
from tests.support.engine import BLOCK, blocks, fetch, keys_of, metric, plan, register, release, store, tokens
from tests.support.redis_cluster import RedisCluster
from tests.support.served import Served, eventually

COUNT = 40
PROMPT = tokens(COUNT * BLOCK + 200)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    cluster = RedisCluster(replicas=0)
    yield cluster
    cluster.close()


@pytest.fixture
def another(tmp_path: Path, cluster: RedisCluster) -> Iterator[Served]:
    """A second node."""
    (tmp_path / "another").mkdir()
    another = Served(tmp_path / "another", KVSHELF_STORE__REDIS_URL=cluster.url)
    another.start()
    yield another
    another.close()


def test_what_one_node_stores_the_other_serves(serve: Serve, another: Served, cluster: RedisCluster) -> None:
    writer, reader = serve(KVSHELF_STORE__REDIS_URL=cluster.url), another
    for served in (writer, reader):
        register(served.http)
    keys = keys_of(writer.http, PROMPT)[:COUNT]
    assert store(writer.http, blocks(keys))["counts"] == {"stored": COUNT}
    assert store(reader.http, blocks(keys))["counts"] == {"duplicate": COUNT}
    planned = plan(reader.http, PROMPT)
    assert planned["hit_tokens"] == COUNT * BLOCK
    received = fetch(reader.http, planned)
    assert len(received) > 0
    assert all(header.miss is None for header, _ in received)
    release(reader.http, planned)
    assert not reader.http.get("/v1/stats").json()["tiers"]["ssd"]["durable"]
    assert metric(reader.http, 'kvshelf_tier_up{tier="ssd"}') == 1
    with cluster.masters()[0].client() as client:
        key = next(client.scan_iter(match="kvshelf-global:*"))
        assert 71 * 3600 * 1000 < client.pttl(key) <= 72 * 3600 * 1000


def test_a_store_that_goes_away_costs_hits_and_nothing_else(serve: Serve, cluster: RedisCluster) -> None:
    served = serve(KVSHELF_STORE__REDIS_URL=cluster.url)
    register(served.http)
    store(served.http, blocks(keys_of(served.http, PROMPT)[:COUNT]))
    for server in cluster.servers:
        server.freeze()
    planned = plan(served.http, PROMPT)
    assert planned["plan"]["mode"] == "cold"
    assert planned["reasons"]["global"]["reason"] == "tier_down"
    assert served.http.get("/healthz").json()["status"] == "degraded"
    for server in cluster.servers:
        server.thaw()
    cluster.wait_until_whole()
    eventually(lambda: plan(served.http, PROMPT)["hit_tokens"] == COUNT * BLOCK, 5)
