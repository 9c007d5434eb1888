"""A request's id end to end: sent by a client, in the log lines of all faces, answered, and in what goes wrong."""

import asyncio
import json
import mmap
import random
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvshelf_client import (
    AsyncClient,
    Client,
    Fault,
    Loaded,
    NamespaceSpec,
    Plan,
    Provenance,
    RecordClass,
    Slot,
    StoreRecord,
    with_request_id,
)
from kvshelf_client.errors import ServiceError
from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from kvshelf_client.request_ids import HEADER, is_request_id
from tests.support.engine import BLOCK, PROFILE, tokens
from tests.support.grpc_engine import GrpcEngine, RefusedError, grpc_engine
from tests.support.served import Served, eventually
from tests.support.wire import NAMESPACE

UNKNOWN = NAMESPACE._replace(name="nowhere")
PROMPT = tokens(9 * BLOCK)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    # Nothing is kept in memory, so that damage on the disk is seen.
    settings = {"KVSHELF_SERVER__LOG_LEVEL": "debug", "KVSHELF_STORE__MEMORY_BYTES": "0"}
    made = Served(tmp_path_factory.mktemp("ids"), "--grpc-port", "0", **settings)
    made.start()
    yield made
    made.close()


@pytest.fixture
def engine(served: Served) -> Iterator[GrpcEngine]:
    with grpc_engine(grpc_url(served)) as made:
        yield made


def grpc_url(served: Served) -> str:
    found = re.search(r"grpc://\S+", served.server.said)
    assert found
    return found.group()


def events(served: Served, request_id: str) -> list[str]:
    """What the log has under an id."""
    return [line["event"] for line in served.log() if line.get("request_id") == request_id]


@pytest.mark.parametrize("sent", ["a", "Run-7/turn:3", "x" * 128])
def test_an_id_is_taken_and_answered(served: Served, sent: str) -> None:
    answer = served.http.get("/v1/namespaces/none", headers={HEADER: sent})
    assert (answer.status_code, answer.headers.get_list(HEADER), answer.json()["request_id"]) == (404, [sent], sent)
    assert served.http.get("/healthz", headers={HEADER: sent}).headers[HEADER] == sent
    assert served.http.get("/nowhere", headers={HEADER: sent}).json()["request_id"] == sent
    eventually(lambda: events(served, sent) == ["answered"] * 3, 5)


@pytest.mark.parametrize("sent", [b"", b"x" * 129, b"two words", b"a\tb", b'"},{"event":"forged', b"\xe9"])
def test_what_is_no_id_is_not_taken(served: Served, sent: bytes) -> None:
    answers = [served.http.get("/v1/namespaces/none", headers={HEADER.encode(): sent}) for _ in range(2)]
    made = [answer.headers[HEADER] for answer in answers]
    assert all(map(is_request_id, made))
    assert made[0] != made[1]
    assert [answer.json()["request_id"] for answer in answers] == made


def test_what_is_no_request_is_answered_with_an_id(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        connection.sendall(b"no HTTP\r\n\r\n")
        head, _, body = connection.makefile("rb").read().decode().partition("\r\n\r\n")
    made = json.loads(body)["request_id"]
    assert is_request_id(made)
    assert f"{HEADER}: {made}" in head


def test_over_grpc(served: Served, engine: GrpcEngine) -> None:
    engine.metadata = ((HEADER, "over-grpc"),)
    with pytest.raises(RefusedError) as refused:
        engine.call("GetNamespace", pb.GetNamespaceRequest(name="none"))
    assert refused.value.details["RequestInfo"].request_id == refused.value.metadata[HEADER] == "over-grpc"
    health = engine.channel.unary_unary("/kvshelf.v1.Kvshelf/Health", None, None)
    calls = [health.with_call(b"", metadata=((HEADER, "no id"),))[1] for _ in range(2)]
    made = [str(dict(call.trailing_metadata())[HEADER]) for call in calls]
    assert all(map(is_request_id, made))
    assert made[0] != made[1]
    eventually(lambda: events(served, "over-grpc") == ["answered"], 5)


@pytest.mark.parametrize(("face", "is_async"), [("rest", False), ("rest", True), ("grpc", False), ("local", False)])
def test_a_damaged_record_is_logged_under_the_id_of_the_request(served: Served, face: str, is_async: bool) -> None:
    name = f"{face}-{is_async}"
    url = grpc_url(served) if face == "grpc" else served.url
    with Client(url, budget_seconds=20, local=face == "local") as client:
        namespace = client.register(name, NamespaceSpec("default", name, "1", PROFILE, BLOCK, 512))
        assert namespace is not None
        keys = client.plan(namespace, tokens=PROMPT).keys
        payloads = [random.Random(key).randbytes(namespace.block_bytes) for key in keys]
        client.store(
            namespace,
            [
                StoreRecord(RecordClass.BLOCK, key, BLOCK * end, payload, Provenance.EXACT)
                for end, (key, payload) in enumerate(zip(keys, payloads, strict=True), 1)
            ],
        )
        plan = client.plan(namespace, tokens=PROMPT, request_id=f"of-{name}")
        flip_a_bit(served.data_dir, payloads[0])
        loaded = asyncio.run(fetched_async(url, plan)) if is_async else client.fetch_into(plan, room_for(plan))
    assert (loaded.fault, loaded.request_id) == (Fault.MISS, f"of-{name}")
    assert "record_corrupt" in eventually(lambda: events(served, f"of-{name}"), 5)


def test_errors_name_the_id_under_which_the_service_logged_them(served: Served) -> None:
    for number, url in enumerate((served.url, grpc_url(served))):
        with Client(url, strict=True, budget_seconds=20) as client, with_request_id(f"mine-{number}"):
            with pytest.raises(ServiceError, match=f"mine-{number}") as refused:
                client.plan(UNKNOWN, tokens=PROMPT, request_id="another")
            assert refused.value.request_id == refused.value.problem["request_id"] == f"mine-{number}"
        eventually(lambda: events(served, f"mine-{number}") == ["answered"], 5)  # noqa: B023


def test_calls_without_an_id_get_one_each(served: Served) -> None:
    with Client(served.url, strict=True) as client:
        made = []
        for _ in range(2):
            with pytest.raises(ServiceError) as refused:
                client.touch(UNKNOWN, RecordClass.BLOCK, [])
            made.append(refused.value.request_id)
    assert made[0] != made[1]
    assert all(is_request_id(each or "") for each in made)


def room_for(plan: Plan) -> Callable[[Slot], bytearray]:
    """Buffers for what a plan loads."""
    return lambda slot: bytearray(plan.namespace.bytes_of(slot.record_class))


async def fetched_async(url: str, plan: Plan) -> Loaded:
    async with AsyncClient(url, budget_seconds=20, local=False) as client:
        return await client.fetch_into(plan, room_for(plan))


def flip_a_bit(directory: Path, payload: bytes) -> None:
    """Damage a record where it is stored."""
    for path in directory.rglob("*.seg"):
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
            at = data.find(payload)
            if at >= 0:
                data[at] ^= 1
                return
    raise AssertionError("the payload is in no segment")
