"""Bad and heavy clients of the gRPC face of a real service: cut off or refused, and all they took is given back."""

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import grpc
import pytest

from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from tests.integration.process.conftest import Serve
from tests.support.engine import BLOCK, blocks, frame, payload_of, tokens
from tests.support.grpc_abuse import PREFACE, HalfSent, connections, is_closed, outcome
from tests.support.grpc_engine import GrpcEngine, grpc_engine
from tests.support.processes import descriptors, resident_bytes
from tests.support.served import Served, eventually

STALL_SECONDS = 0.5
SHORTER_SECONDS = 0.1
"""Where idle connections are waited for: they are closed after 40 of them."""
MAX_CONNECTIONS = 40
SLACK_BYTES = 48 << 20
PROMPT = tokens(64 * BLOCK)
BYTES_PER_TOKEN = 4096
"""Blocks of 512 KiB: a fetch of them is many times what is on its way at once."""


@pytest.fixture
def served(serve: Serve) -> Served:
    return start(serve, STALL_SECONDS)


@pytest.fixture
def url(served: Served) -> str:
    return url_of(served)


@pytest.fixture
def engine(url: str) -> Iterator[GrpcEngine]:
    with grpc_engine(url) as made:
        yield made


def start(serve: Serve, stall_seconds: float) -> Served:
    return serve(
        "--grpc-port", "0",
        KVSHELF_LIMITS__STALL_SECONDS=str(stall_seconds),
        KVSHELF_LIMITS__MAX_CONNECTIONS=str(MAX_CONNECTIONS),
        KVSHELF_LIMITS__MAX_REQUESTS="16",
    )  # fmt: skip


def url_of(served: Served) -> str:
    found = re.search(r"grpc://\S+", served.server.said)
    assert found
    return found.group()


def large(keys: list[str], numbers: range) -> bytes:
    """Frames of some blocks of the prompt."""
    size = BLOCK * BYTES_PER_TOKEN
    return b"".join(frame(keys[at], (at + 1) * BLOCK, payload=payload_of(keys[at], size)) for at in numbers)


def stored(engine: GrpcEngine) -> list[str]:
    """A namespace with all blocks of the prompt."""
    engine.register(bytes_per_token=BYTES_PER_TOKEN)
    keys = engine.keys_of(PROMPT)
    for start in range(0, len(keys), 4):
        engine.store(large(keys, range(start, start + 4)))
    return keys


def test_a_half_sent_store_is_told_so_and_keeps_what_was_whole(served: Served, engine: GrpcEngine) -> None:
    engine.register()
    keys = engine.keys_of(tokens(4 * BLOCK))
    whole = pb.StoreChunk(start=pb.StoreStart(namespace="ns"), frames=blocks(keys[:2]))
    half = HalfSent(engine, [whole, pb.StoreChunk(frames=blocks(keys[2:])[:100])])
    code, refused = outcome(half.call)
    half.leave()
    assert (code, refused.problem.status) == (grpc.StatusCode.DEADLINE_EXCEEDED, 408)
    assert f"longer than {STALL_SECONDS} s" in refused.problem.detail
    assert [one.outcome for one in refused.problem.outcomes] == ["stored"] * 2
    assert 'kvshelf_refused_requests_total{reason="slow"} 1.0' in served.http.get("/metrics").text


def test_a_trickle_stands_still(engine: GrpcEngine) -> None:
    engine.register()
    frames, pause = blocks(engine.keys_of(tokens(4 * BLOCK))), threading.Event()

    def trickle() -> Iterator[bytes]:
        yield pb.StoreChunk(start=pb.StoreStart(namespace="ns")).SerializeToString()
        for at in range(len(frames)):
            pause.wait(STALL_SECONDS / 20)
            yield pb.StoreChunk(frames=frames[at : at + 1]).SerializeToString()

    code, _ = outcome(engine.raw("Store", trickle(), seconds=None))
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_fetch_that_nobody_reads_is_cut_off_with_its_connection(served: Served, url: str) -> None:
    with grpc_engine(url) as engine:
        stored(engine)
        before = descriptors(served)
        planned = engine.plan(PROMPT)
        with grpc_engine(url) as idler:
            fetch = idler.stream("Fetch", pb.FetchRequest(lease_id=planned.lease.lease_id), None)
            next(fetch)
            eventually(lambda: descriptors(served) > before, 5)
            eventually(lambda: descriptors(served) <= before, 20)
            code, _ = outcome(fetch)
            assert code is grpc.StatusCode.UNAVAILABLE
        assert len(engine.fetch(planned)) > 0, "nobody else is cut off, and the lease is what it was"
        engine.release(planned)


def test_connections_are_bounded_and_idle_ones_closed(serve: Serve) -> None:
    served = start(serve, SHORTER_SECONDS)
    url = url_of(served)
    before, greetings = descriptors(served), (b"", PREFACE, b"GET / HTTP/1.1\r\n\r\n")
    with (
        grpc_engine(url) as engine,
        connections(int(url.rpartition(":")[2]), 2 * MAX_CONNECTIONS, lambda number: greetings[number % 3]) as many,
    ):
        eventually(lambda: sum(map(is_closed, many)) >= MAX_CONNECTIONS, 10)
        assert descriptors(served) <= before + MAX_CONNECTIONS
        assert served.http.get("/readyz").status_code == 204
        eventually(lambda: all(map(is_closed, many)), 20)
        assert engine.register().name == "ns", "there is room again"
    eventually(lambda: descriptors(served) <= before, 10)


def test_a_flood_is_refused_with_when_to_come_again(served: Served, url: str, engine: GrpcEngine) -> None:
    engine.register()
    with ExitStack() as stack:
        stores = []
        for _ in range(24):
            flood = stack.enter_context(grpc_engine(url))
            stores.append(HalfSent(flood, [pb.StoreChunk(start=pb.StoreStart(namespace="ns"))]))
            stack.callback(stores[-1].leave)
        ended = [outcome(store.call) for store in stores]
    refused = [each for code, each in ended if code is grpc.StatusCode.RESOURCE_EXHAUSTED]
    assert len(refused) >= 24 - 8, "one source has half of 16"
    assert all(each.details["RetryInfo"].retry_delay.seconds == 1 for each in refused)
    assert engine.plan(tokens(BLOCK)).lease.lease_id


def test_all_is_given_back(served: Served, url: str, engine: GrpcEngine) -> None:
    keys = stored(engine)
    for _ in range(4):  # All that is done below, done decently: what is there once stays.
        planned = engine.plan(PROMPT)
        engine.fetch(planned)
        engine.release(planned)
    descriptors_before, bytes_before = descriptors(served), resident_bytes(served)
    for _ in range(3):
        unread = []
        with ExitStack() as stack:
            for number in range(3):
                bad = stack.enter_context(grpc_engine(url))
                start = pb.StoreChunk(start=pb.StoreStart(namespace="ns"))
                frames = large(keys, range(2))[: -1 - number]
                half = HalfSent(bad, [start, pb.StoreChunk(frames=frames)])
                stack.callback(half.leave)
                lease_id = bad.plan(PROMPT).lease.lease_id
                unread.append(bad.stream("Fetch", pb.FetchRequest(lease_id=lease_id), None))
                next(unread[-1])
                engine.call("Release", pb.ReleaseRequest(lease_id=lease_id))
            eventually(lambda: descriptors(served) <= descriptors_before, 30)
    assert resident_bytes(served) < bytes_before + SLACK_BYTES
    assert served.http.get("/v1/stats").json()["leases"] == {"count": 0, "records": 0}
    assert not [line for line in served.log() if line["event"] == "unexpected_error"]
