"""The longest prompts that are taken are answered soon and keep nobody waiting; longer ones are refused by name."""

import re
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from service.settings.limits import LimitSettings
from storage.clock import SystemClock
from tests.support.engine import BLOCK, plan, register, release, tokens
from tests.support.grpc_engine import GrpcEngine, RefusedError, grpc_engine
from tests.support.served import Served

LIMITS = LimitSettings()
SMALL = 16
MILLION = 1_000_000
MOST_SECONDS, OTHERS_SECONDS = 10.0, 1.0
"""For the longest prompt, and for small requests meanwhile: many times what both take on two busy cores."""
HASHES = {"content-type": "application/vnd.kvshelf.hashes.v1"}
OCTETS = {"content-type": "application/octet-stream"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("long"), "--grpc-port", "0")
    made.start()
    register(made.http, "small", model="small", block_tokens=SMALL)
    register(made.http)
    yield made
    made.close()


@pytest.fixture
def engine(served: Served) -> Iterator[GrpcEngine]:
    found = re.search(r"grpc://\S+", served.server.said)
    assert found
    with grpc_engine(found.group()) as made:
        yield made


def hashes(count: int) -> bytes:
    return b"".join(struct.pack(">Q", number) * 4 for number in range(count))


def rest_hashes(served: Served, _: GrpcEngine) -> str:
    count = LIMITS.max_prompt_blocks
    url = f"/v1/namespaces/small/plan?prompt_tokens={count * SMALL}"
    answer = served.http.post(url, content=hashes(count), headers=HASHES)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["lease"]["lease_id"])


def rest_tokens(served: Served, _: GrpcEngine) -> str:
    prompt = bytes(4 * LIMITS.max_prompt_blocks * SMALL)
    return str(plan(served.http, prompt, "small")["lease"]["lease_id"])


def rest_json(served: Served, _: GrpcEngine) -> str:
    answer = served.http.post("/v1/namespaces/small/plan", json={"tokens": [7] * (1 << 20)})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["lease"]["lease_id"])


def grpc_hashes(_: Served, engine: GrpcEngine) -> str:
    count = LIMITS.max_prompt_blocks
    request = pb.PlanRequest(namespace="small", hashes=hashes(count), prompt_tokens=count * SMALL)
    return str(engine.call("Plan", request).lease.lease_id)


@pytest.mark.parametrize("ask", [rest_hashes, rest_tokens, rest_json, grpc_hashes], ids=lambda ask: ask.__name__)
def test_the_longest_prompt_keeps_nobody_waiting(
    served: Served, engine: GrpcEngine, ask: Callable[[Served, GrpcEngine], str]
) -> None:
    clock, waits = SystemClock(), []
    with ThreadPoolExecutor(1) as threads, httpx.Client(base_url=served.url, timeout=30) as other:
        started = clock.monotonic()
        asking = threads.submit(ask, served, engine)
        while not asking.done():
            before = clock.monotonic()
            assert other.get("/readyz").status_code == 204
            release(other, plan(other, tokens(2 * BLOCK)))
            waits.append(clock.monotonic() - before)
        took = clock.monotonic() - started
    assert served.http.delete(f"/v1/leases/{asking.result()}").status_code == 200
    assert took < MOST_SECONDS
    assert max(waits) < OTHERS_SECONDS, f"of {len(waits)}"
    assert len(waits) > 1, "others were answered while it went on, not after it"


def test_a_million_hashes_are_refused_by_the_name_of_the_limit(served: Served, engine: GrpcEngine) -> None:
    answer = served.http.post(
        f"/v1/namespaces/small/plan?prompt_tokens={MILLION * SMALL}", content=hashes(MILLION), headers=HASHES
    )
    assert answer.status_code == 413
    assert "limits.max_prompt_blocks" in answer.json()["detail"]
    with pytest.raises(RefusedError) as refused:
        engine.call("Plan", pb.PlanRequest(namespace="small", hashes=hashes(MILLION), prompt_tokens=MILLION * SMALL))
    assert refused.value.problem.status == 413
    assert "limits.max_prompt_blocks" in refused.value.problem.detail


def test_more_blocks_than_are_looked_up_are_refused_by_the_name_of_the_limit(served: Served) -> None:
    prompt = bytes(4 * (LIMITS.max_prompt_blocks + 1) * SMALL)
    answer = served.http.post("/v1/namespaces/small/plan", content=prompt, headers=OCTETS)
    assert answer.status_code == 422
    assert "limits.max_prompt_blocks is 131072" in answer.json()["detail"]
    answer = served.http.post("/v1/namespaces/small/plan", json={"tokens": [7] * ((1 << 20) + 1)})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "body.tokens"
