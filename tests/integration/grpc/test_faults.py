"""Callers that leave, come too late, or are too many: nothing wrong, nothing left behind."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from structlog.testing import capture_logs

from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from service.settings import load_settings
from storage.clock import ManualClock
from storage.memory import MemoryTier
from tests.integration.grpc.conftest import MAX_CALLS
from tests.support.engine import BLOCK, blocks, frame, payload_of, tokens
from tests.support.gated_tier import GatedTier
from tests.support.grpc_engine import GrpcEngine, RefusedError, grpc_engine
from tests.support.live import Live, live
from tests.support.served import eventually
from tests.support.service import make_parts

BIG_BLOCKS = 12
SOON = 5.0


def fill(engine: GrpcEngine) -> bytes:
    """Store a prompt's blocks of 2.5 MB each; returns a longer prompt."""
    made = engine.register(bytes_per_token=20_000)
    keys = engine.keys_of(tokens(BIG_BLOCKS * BLOCK))
    for at, key in enumerate(keys):
        data = frame(key, (at + 1) * BLOCK, payload=payload_of(key, made.block_bytes))
        pieces = [data[start : start + (1 << 20)] for start in range(0, len(data), 1 << 20)]
        chunks = [pb.StoreChunk(start=pb.StoreStart(namespace="ns")), *(pb.StoreChunk(frames=one) for one in pieces)]
        assert dict(engine.upload(chunks).counts) == {"stored": 1}
    return tokens((BIG_BLOCKS + 2) * BLOCK)


def is_idle(face: Live) -> Callable[[], bool]:
    return lambda: face.context.under_way == 0


def code_of(call: Iterator[bytes]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as refused:
        list(call)
    return RefusedError(refused.value).code


def test_a_caller_that_leaves_a_fetch_keeps_its_lease(engine: GrpcEngine, face: Live) -> None:
    planned = engine.plan(fill(engine))
    with capture_logs() as log:
        for _ in range(5):
            stream = engine.stream("Fetch", pb.FetchRequest(lease_id=planned.lease.lease_id))
            next(stream)
            stream.cancel()
        eventually(is_idle(face), SOON)
    assert not [line for line in log if line["log_level"] != "debug"]
    assert len(engine.fetch(planned)) == BIG_BLOCKS
    assert engine.release(planned)["ssd"] > 0
    assert len(face.parts.leases) == 0


def test_a_fetch_stops_at_its_deadline(engine: GrpcEngine, face: Live) -> None:
    planned = engine.plan(fill(engine))
    stream = engine.stream("Fetch", pb.FetchRequest(lease_id=planned.lease.lease_id), seconds=0.3)
    next(stream)
    eventually(is_idle(face), SOON)
    assert code_of(stream) is grpc.StatusCode.DEADLINE_EXCEEDED
    assert len(engine.fetch(planned)) == BIG_BLOCKS


def test_what_a_store_had_kept_before_it_was_left_stays(engine: GrpcEngine, face: Live) -> None:
    engine.register()
    prompt = tokens(100 * BLOCK)
    keys = engine.keys_of(prompt)
    leave = threading.Event()

    def chunks() -> Iterator[bytes]:
        yield pb.StoreChunk(start=pb.StoreStart(namespace="ns"), frames=blocks(keys[:70])).SerializeToString()
        leave.wait(SOON)

    with capture_logs() as log:
        call = engine.raw("Store", chunks())
        eventually(lambda: engine.plan(prompt).hit_tokens == 64 * BLOCK, SOON)
        call.cancel()  # type: ignore[attr-defined]
        leave.set()
        eventually(is_idle(face), SOON)
    assert not [line for line in log if line["log_level"] != "debug"]
    kept = engine.plan(prompt).hit_tokens // BLOCK
    assert kept in (64, 70), "the batch that was full, and the next one whole or not at all"
    assert dict(engine.store(blocks(keys)).counts) == {"duplicate": kept, "stored": 100 - kept}


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[tuple[Live, GrpcEngine, GatedTier]]:
    """A service of one worker thread, whose SSD tier waits at a gate."""
    settings = load_settings(flags={"grpc": {"port": 0}, "server": {"workers": 1}}, environment={})
    clock = ManualClock()
    parts = make_parts(tmp_path, clock, settings=settings)
    assert isinstance(parts.blocks, MemoryTier)
    tier = GatedTier.of(parts.blocks)
    with live(parts) as face, grpc_engine(face.grpc_url) as engine:
        engine.register()
        try:
            yield face, engine, tier
        finally:
            tier.gate.set()
    parts.close()


def late(call: Callable[[], object]) -> None:
    with pytest.raises(RefusedError) as refused:
        call()
    assert refused.value.code is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_plan_that_came_too_late_leaves_no_lease(gated: tuple[Live, GrpcEngine, GatedTier]) -> None:
    face, engine, tier = gated
    tier.gate.clear()
    request = pb.PlanRequest(namespace="ns", tokens=tokens(1000), request_id="a")
    late(lambda: engine.call("Plan", request, seconds=0.3))
    late(lambda: engine.call("Plan", request, seconds=0.3))
    eventually(is_idle(face), SOON)
    assert tier.waiting == 1, "the second waited for the thread, and was not begun"
    tier.gate.set()
    eventually(lambda: len(face.parts.plans) > 0 and len(face.parts.leases) == 0, SOON)
    planned = engine.call("Plan", request)
    assert tier.waiting == 2
    engine.release(planned)
    assert face.parts.metrics.registry.get_sample_value("kvshelf_requests_total") == 1, "counted once, when it ran"


def test_calls_beyond_the_bound_may_come_again(engine: GrpcEngine, face: Live) -> None:
    planned = engine.plan(fill(engine))
    request = pb.FetchRequest(lease_id=planned.lease.lease_id)
    streams = [engine.stream("Fetch", request, seconds=None) for _ in range(MAX_CALLS)]
    for stream in streams:
        next(stream)
    assert face.context.under_way == MAX_CALLS
    with grpc_engine(face.grpc_url) as other:
        with pytest.raises(RefusedError) as refused:
            other.plan(tokens(300))
        assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused.value.problem.status == 429
        assert refused.value.details["RetryInfo"].retry_delay.seconds == 1
        streams[0].cancel()
        eventually(lambda: face.context.under_way < MAX_CALLS, SOON)
        other.plan(tokens(300))
    for stream in streams:
        stream.cancel()
    eventually(is_idle(face), SOON)


def test_a_thousand_calls_at_a_time_are_all_answered(tmp_path: Path) -> None:
    parts = make_parts(tmp_path, ManualClock(), settings=load_settings(flags={"grpc": {"port": 0}}, environment={}))
    with live(parts) as face, grpc_engine(face.grpc_url) as engine:
        engine.register()
        ask = engine.channel.unary_unary("/kvshelf.v1.Kvshelf/Plan", None, pb.PlanResponse.FromString)
        requests = [
            pb.PlanRequest(namespace="ns", tokens=tokens(100 + number), request_id=str(number)).SerializeToString()
            for number in range(1000)
        ]
        answers = [call.result() for call in [ask.future(request, timeout=60) for request in requests]]
        assert [(answer.request_id, answer.plan.prompt_tokens) for answer in answers] == [
            (str(number), 100 + number) for number in range(1000)
        ]
        assert len(parts.leases) == 1000
        assert face.context.under_way == 0
    parts.close()


def beside_workers() -> int:
    """Threads but those of the service's bounded pool, which grows when it is used."""
    return sum(not thread.name.startswith("kvshelf-worker") for thread in threading.enumerate())


def test_nothing_leaks(engine: GrpcEngine, face: Live) -> None:
    prompt = fill(engine)
    left = engine.channel.unary_unary("/kvshelf.v1.Kvshelf/Plan", None, None)
    request = pb.PlanRequest(namespace="ns", tokens=prompt, request_id="left").SerializeToString()

    def misbehave() -> None:
        planned = engine.plan(prompt)
        stream = engine.stream("Fetch", pb.FetchRequest(lease_id=planned.lease.lease_id))
        next(stream)
        stream.cancel()
        left.future(request).cancel()  # type: ignore[no-untyped-call]
        with pytest.raises(RefusedError):
            engine.upload([pb.StoreChunk(frames=b"no frame")])
        engine.release(planned)
        eventually(is_idle(face), SOON)

    for _ in range(20):
        misbehave()
    threads, files = beside_workers(), len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        misbehave()
    eventually(lambda: beside_workers() <= threads and len(os.listdir("/proc/self/fd")) <= files, SOON)
    engine.release(engine.plan(prompt, request_id="left"))  # Its last answer may have been under way.
    eventually(lambda: len(face.parts.leases) == 0, SOON)
    face.parts.leases.check_integrity()
