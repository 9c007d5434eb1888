"""The shipped gRPC transport against a service: deadlines, cancellation, close, trouble, several event loops."""

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from kvshelf_client import Client, requests
from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import AnswerError, DeadlineError, KvshelfError, ServiceError, UnreachableError
from kvshelf_client.frames import FrameHeader
from kvshelf_client.requests import NamespaceSpec, StoreRecord
from kvshelf_client.transport import Transport, TransportOptions, transport_module
from kvshelf_client.upload import body_length_bytes
from kvshelf_client.words import Provenance, RecordClass
from storage.memory import MemoryTier
from tests.support.client import registered
from tests.support.engine import BLOCK, PROFILE, tokens
from tests.support.gated_tier import GatedTier
from tests.support.live import Live
from tests.support.served import eventually
from tests.support.sinks import CollectingSink

SPEC = NamespaceSpec("default", "m", "1", PROFILE, BLOCK, 890)
BLOCKS = 40


@pytest.fixture
def transport(face: Live) -> Iterator[Transport]:
    assert face.grpc_url is not None
    made = transport_module(face.grpc_url).connect(face.grpc_url, TransportOptions())
    yield made
    made.close()


def filled(transport: Transport) -> str:
    """A lease on blocks of 114 KB."""
    made = transport.call(requests.Register("ns", SPEC), Deadline(5))
    keys = transport.call(requests.HashTokens("ns", tokens(BLOCKS * BLOCK)), Deadline(5)).keys
    records = [
        StoreRecord(
            RecordClass.BLOCK, key, (at + 1) * BLOCK, memoryview(bytes([at]) * made.block_bytes), Provenance.EXACT
        )
        for at, key in enumerate(keys)
    ]
    stored = transport.call(requests.Store("ns", records, body_length_bytes(records)), Deadline(5))
    assert stored.counts == {"stored": BLOCKS}
    prompt = tokens((BLOCKS + 2) * BLOCK)
    return transport.call(requests.AskPlan("ns", len(prompt) // 4, "r", prompt), Deadline(5)).lease.lease_id


def test_bulk_goes_up_and_comes_down_whole(transport: Transport) -> None:
    sink = CollectingSink()
    transport.call(requests.Fetch(filled(transport), sink), Deadline(5))
    assert [payload[0] for payload in sink.payloads] == list(range(BLOCKS))
    assert {len(payload) for payload in sink.payloads} == {113_920}


class Refusing(CollectingSink):
    """Takes three frames and no more."""

    def begin(self, header: FrameHeader) -> memoryview:
        if self.begun == 3:
            raise KvshelfError("enough")
        return super().begin(header)


def test_a_sink_that_has_enough_ends_the_call(transport: Transport, face: Live) -> None:
    lease = filled(transport)
    for _ in range(3):
        with pytest.raises(KvshelfError, match="enough"):
            transport.call(requests.Fetch(lease, Refusing()), Deadline(5))
    eventually(lambda: face.context.under_way == 0, 5)
    sink = CollectingSink()
    transport.call(requests.Fetch(lease, sink), Deadline(5))
    assert len(sink.payloads) == BLOCKS


def test_asyncio_does_the_same_and_may_be_cancelled(transport: Transport, face: Live) -> None:
    lease = filled(transport)
    url = face.grpc_url
    assert url is not None

    class Slow(CollectingSink):
        def begin(self, header: FrameHeader) -> memoryview:
            begun.set()
            threading.Event().wait(0.02)
            return super().begin(header)

    begun = threading.Event()

    async def main() -> int:
        calls = transport_module(url).connect_async(url, TransportOptions(max_connections=8))
        sinks = [CollectingSink() for _ in range(8)]
        for sink in sinks[:3]:
            await calls.call(requests.Fetch(lease, sink), Deadline(5))
        assert all(len(sink.payloads) == BLOCKS for sink in sinks[:3])
        healths = await asyncio.gather(*(calls.call(requests.CheckHealth(), Deadline(20)) for _ in range(4)))
        assert {health.status for health in healths} == {"ok"}
        slow = Slow()
        task = asyncio.create_task(calls.call(requests.Fetch(lease, slow), Deadline(20)))
        await asyncio.to_thread(begun.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        landed = slow.begun
        await asyncio.sleep(0.1)
        assert slow.begun == landed, "nothing is written once the call is over"
        with pytest.raises(ServiceError) as refused:
            await calls.call(requests.Release("none"), Deadline(5))
        assert refused.value.status == 404
        await calls.close()
        with pytest.raises(UnreachableError):
            await calls.call(requests.CheckHealth(), Deadline(5))
        return landed

    assert 1 <= asyncio.run(main()) < BLOCKS
    eventually(lambda: face.context.under_way == 0, 5)


def test_several_event_loops_may_call_at_a_time(face: Live) -> None:
    url = face.grpc_url
    assert url is not None
    statuses: list[str] = []

    async def main() -> None:
        calls = transport_module(url).connect_async(url, TransportOptions())
        for _ in range(100):
            statuses.append((await calls.call(requests.CheckHealth(), Deadline(20))).status)
        await calls.close()

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == ["ok"] * 300


def test_a_call_is_over_at_its_deadline(transport: Transport, face: Live) -> None:
    transport.call(requests.Register("ns", SPEC), Deadline(5))
    assert isinstance(face.parts.blocks, MemoryTier)
    tier = GatedTier.of(face.parts.blocks)
    tier.gate.clear()
    deadline = Deadline(0.3)
    with pytest.raises(DeadlineError):
        transport.call(requests.AskPlan("ns", 1000, "r", tokens(1000)), deadline)
    assert deadline.is_over
    tier.gate.set()


def test_calls_beyond_the_bound_wait_their_time(face: Live) -> None:
    assert isinstance(face.parts.blocks, MemoryTier)
    url = face.grpc_url
    assert url is not None
    with Client(url, strict=True, max_connections=1) as client:
        namespace = registered(client, "ns", SPEC)
        tier = GatedTier.of(face.parts.blocks)
        tier.gate.clear()
        first = threading.Thread(target=client.plan, args=(namespace,), kwargs={"tokens": tokens(1000)})
        first.start()
        eventually(lambda: tier.waiting == 1, 5)
        with pytest.raises(DeadlineError, match="under way"):
            client.stats(budget_seconds=0.1)
        tier.gate.set()
        first.join()
        assert client.health(budget_seconds=5).status == "ok"


def test_a_client_that_was_closed_is_told_so(transport: Transport) -> None:
    transport.close()
    with pytest.raises(UnreachableError, match="closed"):
        transport.call(requests.CheckHealth(), Deadline(1))


def test_nobody_there_is_unreachable_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"grpc://127.0.0.1:{taken.getsockname()[1]}"
        transport = transport_module(url).connect(url, TransportOptions())
        deadline = Deadline(5)
        with pytest.raises(UnreachableError):
            transport.call(requests.CheckHealth(), deadline)
        assert deadline.remaining_seconds > 3
        transport.close()


def test_a_service_that_says_nothing_costs_no_more_than_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        transport = transport_module(url).connect(url, TransportOptions())
        deadline = Deadline(0.4)
        with pytest.raises((DeadlineError, UnreachableError)):
            transport.call(requests.CheckHealth(), deadline)
        transport.close()


def test_another_grpc_service_is_no_kvshelf() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    url = f"grpc://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    transport = transport_module(url).connect(url, TransportOptions())
    with pytest.raises(AnswerError, match=r"does not speak kvshelf\.v1"):
        transport.call(requests.CheckHealth(), Deadline(5))
    transport.close()
    server.stop(None)


def test_a_client_from_before_a_fork_is_not_used(transport: Transport) -> None:
    transport._channel._process = os.getpid() - 1  # type: ignore[attr-defined]
    with pytest.raises(UnreachableError, match="fork"):
        transport.call(requests.CheckHealth(), Deadline(1))


@pytest.mark.parametrize(
    "url", ["grpc://", "grpc://host", "grpc://:1", "grpc://host:1/path", "grpc://host:port", "grpcs://host"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"looks like grpc://|Port"):
        transport_module(url).connect(url, TransportOptions())


def test_without_its_extra_grpc_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("kvshelf_client.grpc")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ImportError, match=r"kvshelf-client\[grpc\]"):
        transport_module("grpc://127.0.0.1:1")
