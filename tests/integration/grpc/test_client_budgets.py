"""The shipped gRPC transport keeps its time whatever gRPC and the service do, and says whose fault it was."""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvshelf_client import requests
from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import AnswerError, DeadlineError, KvshelfError
from kvshelf_client.frames import HEADER_BYTES, FrameHeader, FrameKind, checksum_of, pack_header
from kvshelf_client.grpc.chunks import pack_frame_chunk
from kvshelf_client.requests import NamespaceSpec, Request, StoreRecord
from kvshelf_client.transport import TransportOptions, transport_module
from kvshelf_client.words import Provenance, RecordClass
from tests.support.engine import BLOCK, PROFILE, tokens
from tests.support.scripted_grpc import Script, answering, scripted_grpc
from tests.support.sinks import CollectingSink

SPEC = NamespaceSpec("default", "m", "1", PROFILE, BLOCK)
LATE_SECONDS = 0.5
"""What a machine with much else to do may add. A call that gRPC has lost takes forever."""
THREADS, STORES = 8, 25


def store(payload: Any = bytes(50_000), records: int = 20) -> requests.Store:
    record = StoreRecord(RecordClass.BLOCK, bytes(32), BLOCK, payload, Provenance.EXACT)
    return requests.Store("ns", [record] * records, records * (HEADER_BYTES + memoryview(payload).nbytes))


def fetch(sink: CollectingSink | None = None) -> requests.Fetch:
    return requests.Fetch("lease", sink or CollectingSink())


def called(url: str, request: Request[Any], deadline: Deadline) -> Any:
    transport = transport_module(url).connect(url, TransportOptions())
    try:
        return transport.call(request, deadline)
    finally:
        transport.close()


async def called_async(url: str, request: Request[Any], deadline: Deadline) -> Any:
    transport = transport_module(url).connect_async(url, TransportOptions())
    try:
        return await transport.call(request, deadline)
    finally:
        await transport.close()


def both(url: str, make: Callable[[], Request[Any]], seconds: float) -> Iterator[Callable[[], Any]]:
    """One call for threads, and one for asyncio."""
    yield lambda: called(url, make(), Deadline(seconds))
    yield lambda: asyncio.run(called_async(url, make(), Deadline(seconds)))


def late(messages: Iterator[bytes]) -> Iterator[bytes]:
    """An answer about when the budget is over."""
    for _ in messages:
        pass
    time.sleep(random.uniform(0, 0.1))
    yield b"\x18\x01"


@pytest.mark.parametrize("script", [late, answering(b"", b"")], ids=["late", "more than one answer"])
def test_no_store_outlasts_its_budget(script: Script) -> None:
    over_by: list[float] = []

    def stores() -> None:
        for _ in range(STORES):
            seconds, began = random.uniform(0.02, 0.1), time.monotonic()
            with pytest.raises(KvshelfError):
                transport.call(store(), Deadline(seconds))
            over_by.append(time.monotonic() - began - seconds)

    with scripted_grpc(script) as url:
        transport = transport_module(url).connect(url, TransportOptions())
        threads = [threading.Thread(target=stores, daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(STORES * (0.1 + LATE_SECONDS))
        transport.close()
    assert len(over_by) == THREADS * STORES, "the others have not come back"
    assert max(over_by) < LATE_SECONDS


def silent(messages: Iterator[bytes]) -> Iterator[bytes]:
    """One message, and then nothing for as long as the caller is there."""
    yield pack_frame_chunk([b"K"], length_bytes=1000)
    for _ in messages:
        pass
    is_over.wait(5)


is_over = threading.Event()


@pytest.mark.parametrize("make", [fetch, store, requests.CheckHealth])
def test_a_service_that_falls_silent_costs_no_more_than_the_budget(make: Callable[[], Request[Any]]) -> None:
    is_over.clear()
    with scripted_grpc(silent) as url:
        for call in both(url, make, 0.2):
            began = time.monotonic()
            with pytest.raises(DeadlineError):
                call()
            assert 0.15 < time.monotonic() - began < 0.2 + LATE_SECONDS
        is_over.set()


def test_nothing_is_begun_that_is_too_late() -> None:
    begun: list[bytes] = []

    def script(messages: Iterator[bytes]) -> Iterator[bytes]:
        begun.extend(messages)
        yield b"\x0a\x02ok"

    with scripted_grpc(script) as url:
        for call in both(url, requests.CheckHealth, 0.0):
            with pytest.raises(DeadlineError):
                call()
        assert called(url, requests.CheckHealth(), Deadline(5)).status == "ok"
    assert len(begun) == 1


ASKED = [
    requests.Register("ns", SPEC),
    requests.HashTokens("ns", tokens(BLOCK)),
    requests.AskPlan("ns", BLOCK, "r", tokens(BLOCK)),
    requests.Renew("lease"),
    requests.Release("lease"),
    requests.Stats(),
    requests.CheckHealth(),
    store(),
]


@pytest.mark.parametrize("request_", ASKED, ids=lambda request: request.verb)
def test_an_empty_message_is_no_answer(request_: Request[Any]) -> None:
    with scripted_grpc(answering(b"")) as url:
        for call in both(url, lambda: request_, 5):
            with pytest.raises(AnswerError):
                call()


NUMBERS = requests.TouchRecords("ns", RecordClass.BLOCK, [bytes(32)])


@pytest.mark.parametrize("request_", [*ASKED, NUMBERS], ids=lambda request: request.verb)
def test_a_call_that_ends_well_without_an_answer_has_none(request_: Request[Any]) -> None:
    with scripted_grpc(answering()) as url:
        for call in both(url, lambda: request_, 5):
            with pytest.raises(AnswerError):
                call()


def test_a_plan_takes_its_parts() -> None:
    """Each is a message of its own, and would be all zeros without."""
    lease, plan = b"\x12\x03\x0a\x01l", b"\x1a\x03\x0a\x01p"
    for parts in (lease, plan, lease + plan):
        with scripted_grpc(answering(parts)) as url, pytest.raises(AnswerError, match=r"is missing|its load"):
            called(url, ASKED[2], Deadline(5))


def test_none_touched_is_an_answer() -> None:
    with scripted_grpc(answering(b"")) as url:
        assert called(url, NUMBERS, Deadline(5)) == 0
        assert called(url, store(records=0), Deadline(5)).outcomes == []


def frames(count: int) -> Script:
    """A fetch of so many blocks, in one message."""
    payload = bytes(1000)
    header = FrameHeader(FrameKind.BLOCK, bytes(32), len(payload), checksum_of(payload), Provenance.EXACT)
    return answering(pack_frame_chunk([pack_header(header), payload] * count, length_bytes=count * (80 + 1000)))


class Mistaken(CollectingSink):
    """The caller's own mistake."""

    def begin(self, header: FrameHeader) -> memoryview:
        raise ValueError("a buffer of 3 bytes")


def test_a_mistake_of_the_caller_with_its_buffers_is_told_as_such() -> None:
    with scripted_grpc(frames(3)) as url:
        for call in both(url, lambda: fetch(Mistaken()), 5):
            with pytest.raises(ValueError, match="3 bytes"):
                call()


def test_a_mistake_of_the_caller_with_a_payload_is_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    in_pieces = memoryview(bytes(2000))[::2]
    with scripted_grpc(answering(b"\x18\x01")) as url:
        for call in both(url, lambda: store(in_pieces), 5):
            with pytest.raises(TypeError, match="contiguous"):
                call()
    assert not caplog.records, "gRPC tells nobody but the log"


class Slow(CollectingSink):
    """Takes half of the budget for every buffer."""

    def begin(self, header: FrameHeader) -> memoryview:
        time.sleep(0.1)
        return super().begin(header)


def test_the_budget_is_looked_at_between_records() -> None:
    sinks: list[Slow] = []

    def make() -> Request[Any]:
        sinks.append(Slow())
        return fetch(sinks[-1])

    with scripted_grpc(frames(20)) as url:
        for call in both(url, make, 0.2):
            with pytest.raises(DeadlineError):
                call()
    assert all(1 <= sink.begun <= 3 for sink in sinks)
