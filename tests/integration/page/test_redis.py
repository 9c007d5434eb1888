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
