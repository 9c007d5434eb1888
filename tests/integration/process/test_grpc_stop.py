"""SIGTERM while gRPC is in use: health says so, nothing new is taken, what is under way ends, nobody waits for ever."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from tests.support.engine import BLOCK, frame, payload_of, tokens
from tests.support.grpc_engine import GrpcEngine, RefusedError, grpc_engine
from tests.support.served import Served, eventually

BLOCKS = 12


@pytest.fixture
def drain_seconds() -> int:
    return 3


@pytest.fixture
def served(tmp_path: Path, drain_seconds: int) -> Iterator[Served]:
    made = Served(tmp_path, "--grpc-port", "0", KVSHELF_SERVER__DRAIN_SECONDS=str(drain_seconds))
    made.start()
    yield made
    made.close()


@pytest.fixture
def engine(served: Served) -> Iterator[GrpcEngine]:
    found = re.search(r"grpc://\S+", served.server.said)
    assert found is not None
    with grpc_engine(found.group()) as engine:
        yield engine


def stalled_fetch(engine: GrpcEngine) -> Iterator[pb.FrameChunk]:
    """A fetch of 30 MB of which nobody reads more than the first message."""
    made = engine.register(bytes_per_token=20_000)
    prompt = tokens(BLOCKS * BLOCK)
    for at, key in enumerate(engine.keys_of(prompt)):
        data = frame(key, (at + 1) * BLOCK, payload=payload_of(key, made.block_bytes))
        start = pb.StoreStart(namespace="ns", relaxed=True)
        assert engine.upload([pb.StoreChunk(start=start, frames=data)]).counts["stored"] == 1
    planned = engine.plan(tokens((BLOCKS + 2) * BLOCK))
    stream: Iterator[pb.FrameChunk] = engine.stream("Fetch", pb.FetchRequest(lease_id=planned.lease.lease_id), None)
    return stream


def status_of(engine: GrpcEngine) -> int:
    stub = health_pb2_grpc.HealthStub(engine.channel)
    return int(stub.Check(health_pb2.HealthCheckRequest(), timeout=5).status)


def test_what_is_under_way_ends_and_nothing_new_is_taken(served: Served, engine: GrpcEngine) -> None:
    stream = stalled_fetch(engine)
    first = next(stream)
    served.signal(signal.SIGTERM)
    eventually(lambda: status_of(engine) == health_pb2.HealthCheckResponse.NOT_SERVING, 2)
    with pytest.raises(RefusedError) as refused:
        engine.plan(tokens(300))
    assert refused.value.code is grpc.StatusCode.UNAVAILABLE
    assert refused.value.problem.status == 503
    assert refused.value.details["RetryInfo"].retry_delay.seconds == 1
    assert len(first.frames) + sum(len(chunk.frames) for chunk in stream) == first.length_bytes
    assert served.wait(10) == 0


def test_a_caller_that_does_not_read_is_cut_off_at_last(served: Served, engine: GrpcEngine) -> None:
    stream = stalled_fetch(engine)
    next(stream)
    served.signal(signal.SIGTERM)
    assert served.wait(10) == 0
    with pytest.raises(grpc.RpcError) as refused:
        list(stream)
    assert RefusedError(refused.value).code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


@pytest.mark.parametrize("drain_seconds", [60])
def test_a_second_signal_cuts_off_at_once(served: Served, engine: GrpcEngine) -> None:
    stream = stalled_fetch(engine)  # A stream that is let go of is cancelled.
    next(stream)
    served.signal(signal.SIGTERM)
    eventually(lambda: status_of(engine) == health_pb2.HealthCheckResponse.NOT_SERVING, 2)
    served.signal(signal.SIGTERM)
    assert served.wait(20) == 0


def test_a_port_that_is_taken_is_said(served: Served, tmp_path: Path) -> None:
    found = re.search(r"grpc://127.0.0.1:(\d+)", served.server.said)
    assert found is not None
    other = Served(tmp_path / "other", "--grpc-port", found.group(1))
    (tmp_path / "other").mkdir()
    with pytest.raises(Exception, match="did not start"):
        other.start()
    assert "for gRPC" in other.log_path.read_text()
