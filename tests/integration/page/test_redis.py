"""What is said of a pool in Redis: while it is away, once it is back, and of one that lost what it had."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import Node
from tests.support.redis_server import RedisServer

POOL = 2


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
def node(tmp_path: Path, redis: RedisServer) -> Iterator[Node]:
    node = Node(tmp_path, pool={"redis_url": redis.url})
    yield node
    node.close()


def talk(node: Node) -> None:
    """Twenty sessions, one turn each."""
    for number in range(20):
        node.turn(f"{number}", 30)


def titles(node: Node) -> dict[str, str]:
    return {one["title"]: one["level"] for one in node.overview()["findings"]}


def test_away_and_back(node: Node, redis: RedisServer) -> None:
    talk(node)
    node.wait(10)
    redis.stop()
    talk(node)
    assert titles(node)["Snapshots are out of reach"] == "bad"
    assert node.overview()["health"]["status"] == "degraded"
    away = node.overview()["answers"][POOL]
    assert (away["level"], "nobody can tell" in away["answer"]) == ("bad", True)
    redis.start()
    node.wait(60)
    talk(node)
    found = titles(node)
    assert found["Snapshots were out of reach for a while, and the tier serves again"] == "look"
    assert "The pool is too small" not in found
    assert "bad" not in found.values()
    assert node.overview()["health"]["status"] == "ok"


def test_an_empty_redis_is_not_too_small(node: Node, redis: RedisServer) -> None:
    talk(node)
    node.wait(10)
    with redis.client() as client:
        client.flushall()
    node.wait(10)
    talk(node)
    found = titles(node)
    assert found["The pool lost snapshots"] == "look"
    assert "The pool is too small" not in found
    assert node.overview()["answers"][POOL]["answer"].startswith("No: some were lost")


def fill(node: Node) -> None:
    """Two dozen snapshots of 1.3 MB, twice: the second time those that went are missed."""
    full = node.register("full", is_full=True)
    for number in [*range(24), *range(24)]:
        node.turn(f"{number}", 2, namespace=full)
    node.wait(10)


def test_more_room_makes_it_the_past(node: Node, redis: RedisServer) -> None:
    with redis.client() as client:
        client.config_set("maxmemory-policy", "volatile-ttl")
        client.config_set("maxmemory", 12 << 20)
        node.wait(10)
        fill(node)
        assert titles(node)["The pool is too small"] == "bad"
        client.config_set("maxmemory", 1 << 30)
    node.wait(10)
    node.plan("0", 2)
    found = titles(node)
    assert found["The pool was too small, and has room now"] == "look"
    assert not any(" is too small" in title or " are evicted" in title for title in found)
    assert node.overview()["answers"][POOL]["answer"].startswith("No: it was")


def test_a_full_pool_that_is_frozen_is_not_judged(node: Node, redis: RedisServer) -> None:
    with redis.client() as client:
        client.config_set("maxmemory-policy", "volatile-ttl")
        client.config_set("maxmemory", 12 << 20)
    fill(node)
    redis.freeze()
    talk(node)
    assert "nobody can tell" in node.overview()["answers"][POOL]["answer"]
    assert not any("too small" in title or "evicted" in title for title in titles(node))
    redis.thaw()


def test_one_lost_snapshot_does_not_make_a_full_pool_too_small(node: Node, redis: RedisServer) -> None:
    with redis.client() as client:
        client.config_set("maxmemory", 3 << 19)
        talk(node)
        client.delete(next(client.scan_iter()))
    node.wait(10)
    talk(node)
    assert "The pool is too small" not in titles(node)
    assert node.overview()["answers"][POOL]["answer"].startswith("No")
