"""The doctor, sent to real services: one that is well, one whose pool is away, one whose keys do not match, none."""

import json

from tests.integration.process.conftest import Serve
from tests.support.engine import BLOCK, blocks, keys_of, plan, register, release, store, tokens
from tests.support.redis_server import RedisServer
from tests.support.served import eventually, kvshelf


def seen(url: str, *words: str) -> tuple[int, dict[str, object]]:
    done = kvshelf("doctor", url, "--json", *words)
    assert not done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_service_that_is_well(serve: Serve) -> None:
    served = serve()
    register(served.http)
    prompt = tokens(20 * BLOCK + 200)
    store(served.http, blocks(keys_of(served.http, prompt)[:20]))
    for _ in range(3):
        release(served.http, plan(served.http, prompt))
    status, document = seen(served.url)
    assert status == 0, document
    assert [step["name"] for step in document["steps"]] == ["register", "hash", "store", "plan", "fetch", "release"]  # type: ignore[attr-defined]
    eventually(lambda: len(served.http.get("/v1/namespaces").json()["namespaces"]) == 1, 5)
    text = kvshelf("doctor", served.url)
    assert text.stdout.startswith("ok ")
    assert "A live request: register" in text.stdout


def test_keys_that_do_not_match(serve: Serve) -> None:
    served = serve()
    register(served.http)
    stored, asked = tokens(200 * BLOCK, seed=1), tokens(200 * BLOCK, seed=2)
    store(served.http, blocks(keys_of(served.http, stored)))
    for _ in range(10):
        release(served.http, plan(served.http, asked))
    status, document = seen(served.url, "--no-probe")
    assert status == 2
    assert document["findings"][0]["title"] == "What is stored is never found"  # type: ignore[index]
    assert document["steps"] == []


def test_a_pool_that_is_away(serve: Serve, redis: RedisServer) -> None:
    served = serve("--redis-url", redis.url)
    redis.stop()
    eventually(lambda: served.http.get("/healthz").json()["status"] == "degraded", 10)
    status, document = seen(served.url)
    assert status == 2
    assert document["findings"][0]["title"] == "The service is degraded"  # type: ignore[index]


def test_nobody_there_is_broken() -> None:
    done = kvshelf("doctor", "http://127.0.0.1:1")
    assert done.returncode == 2
    assert done.stdout.startswith("BAD   The service does not answer")
    assert "is the service running there?" in done.stdout
    status, document = seen("http://127.0.0.1:1")
    assert (status, [finding["level"] for finding in document["findings"]]) == (2, ["bad"])  # type: ignore[attr-defined]
