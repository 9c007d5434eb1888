"""Every error has its status code, and the problem that REST answers with among its details."""

import struct
from collections.abc import Iterator

import grpc
import pytest

from kvshelf_client.frames import FrameHeader, FrameKind, checksum_of, pack_header
from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from kvshelf_client.words import MissReason, Provenance
from service.settings import load_settings
from storage.clock import ManualClock
from tests.support.engine import BLOCK, blocks, tokens
from tests.support.grpc_engine import GrpcEngine, RefusedError, grpc_engine
from tests.support.live import live
from tests.support.service import make_parts

INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
KEY = bytes(32)


def plan(**fields: object) -> pb.PlanRequest:
    return pb.PlanRequest(**{"namespace": "ns", "tokens": tokens(300)} | fields)  # type: ignore[arg-type]


def record(**fields: object) -> pb.RecordRequest:
    return pb.RecordRequest(**{"namespace": "ns", "record_class": "block", "key": KEY} | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verb", "request_", "code", "status", "field"),
    [
        ("Register", pb.RegisterRequest(name="ns", model="m"), INVALID, 422, "profile"),
        ("Register", pb.RegisterRequest(name="ns", model="m", profile_id="none"), INVALID, 422, "profile"),
        ("Register", pb.RegisterRequest(name="ns", profile_id="none"), INVALID, 422, "model"),
        ("Register", pb.RegisterRequest(name="/", model="m", profile_id="llama-3-8b"), INVALID, 422, None),
        ("GetNamespace", pb.GetNamespaceRequest(name="other"), NOT_FOUND, 404, None),
        ("Hash", pb.HashRequest(namespace="other"), NOT_FOUND, 404, None),
        ("Hash", pb.HashRequest(namespace="ns", tokens=bytes(7)), INVALID, 422, "tokens"),
        ("Hash", pb.HashRequest(namespace="ns", extra=bytes(5000)), INVALID, 422, "extra"),
        ("Plan", plan(namespace="other"), NOT_FOUND, 404, None),
        ("Plan", plan(tokens=b""), INVALID, 422, "prompt_tokens"),
        ("Plan", plan(tokens=bytes(5)), INVALID, 422, "tokens"),
        ("Plan", plan(prompt_tokens=299), INVALID, 422, "prompt_tokens"),
        ("Plan", pb.PlanRequest(namespace="ns"), INVALID, 422, "tokens"),
        ("Plan", pb.PlanRequest(namespace="ns", hashes=bytes(64)), INVALID, 422, "prompt_tokens"),
        ("Plan", pb.PlanRequest(namespace="ns", hashes=bytes(64), prompt_tokens=900), INVALID, 422, "hashes"),
        ("Plan", pb.PlanRequest(namespace="ns", hashes=bytes(65), prompt_tokens=300), INVALID, 422, "hashes"),
        ("Plan", plan(hbm_tokens=-1), INVALID, 422, "hbm_tokens"),
        ("Plan", plan(hbm_tokens=301), INVALID, 422, "hbm_tokens"),
        ("Plan", plan(hbm_exact_tokens=1), INVALID, 422, "hbm_exact_tokens"),
        ("Plan", plan(request_id=""), INVALID, 422, "request_id"),
        ("Plan", plan(request_id="x" * 129), INVALID, 422, "request_id"),
        ("Plan", plan(lease_ttl_seconds=0), INVALID, 422, "lease_ttl_seconds"),
        ("Plan", plan(lease_ttl_seconds=601), INVALID, 422, "lease_ttl_seconds"),
        ("Plan", plan(lease_ttl_seconds=float("nan")), INVALID, 422, "lease_ttl_seconds"),
        ("Plan", plan(max_load_bytes_per_saved_token=float("inf")), INVALID, 422, "max_load_bytes_per_saved_token"),
        ("Plan", plan(supports=pb.Abilities(names=["magic"])), INVALID, 422, "supports"),
        ("Renew", pb.RenewRequest(lease_id="none"), NOT_FOUND, 404, None),
        ("Release", pb.ReleaseRequest(lease_id="none"), NOT_FOUND, 404, None),
        ("Release", pb.ReleaseRequest(lease_id="none", ran="hot"), INVALID, 422, "ran"),
        ("LookAtRecord", record(key=bytes(31)), INVALID, 422, "key"),
        ("LookAtRecord", record(shard=1), INVALID, 422, "shard"),
        ("LookAtRecord", record(record_class="page"), INVALID, 422, "record_class"),
        ("Touch", pb.KeysRequest(namespace="ns", record_class="block", keys=[bytes(3)]), INVALID, 422, "keys"),
        ("Delete", pb.KeysRequest(namespace="ns", keys=[KEY]), INVALID, 422, "record_class"),
    ],
)
def test_an_error_names_its_field(
    engine: GrpcEngine, verb: str, request_: pb.PlanRequest, code: grpc.StatusCode, status: int, field: str | None
) -> None:
    engine.register()
    with pytest.raises(RefusedError) as refused:
        engine.call(verb, request_)
    assert refused.value.code is code
    assert refused.value.problem.status == status
    assert refused.value.problem.detail
    if field is not None:
        assert [fault.field for fault in refused.value.problem.errors] == [field]
        violations = refused.value.details["BadRequest"].field_violations
        assert [violation.field for violation in violations] == [field]


def test_a_namespace_that_is_something_else_says_in_what(engine: GrpcEngine) -> None:
    engine.register()
    with pytest.raises(RefusedError) as refused:
        engine.register(weights_revision="2", shards=2)
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
    problem = refused.value.problem
    assert problem.status == 409
    assert {one.field: (one.registered.string_value, one.requested.string_value) for one in problem.differences}[
        "weights_revision"
    ] == ("1", "2")


@pytest.mark.parametrize("message", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x07"])
def test_what_is_no_message_is_refused(engine: GrpcEngine, message: bytes) -> None:
    for verb in ("Plan", "Store"):
        with pytest.raises(grpc.RpcError) as refused:
            list(engine.raw(verb, [message]))
        assert RefusedError(refused.value).code is INVALID


def test_a_call_without_a_request_is_refused(engine: GrpcEngine) -> None:
    for verb in ("Plan", "Store", "Fetch"):
        with pytest.raises(grpc.RpcError) as refused:
            list(engine.raw(verb, []))
        assert RefusedError(refused.value).code is INVALID, verb


def test_a_verb_that_does_not_exist(engine: GrpcEngine) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        list(engine.raw("Burn", [b""]))
    assert RefusedError(refused.value).code is grpc.StatusCode.UNIMPLEMENTED


START = pb.StoreChunk(start=pb.StoreStart(namespace="ns"))


def _header(**changes: object) -> bytes:
    fields = {"kind": FrameKind.BLOCK, "key": KEY, "length_bytes": 128, "checksum": checksum_of(bytes(128))}
    return pack_header(FrameHeader(**fields | {"provenance": Provenance.EXACT, "end_tokens": BLOCK} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("chunks", "code", "status"),
    [
        ([pb.StoreChunk(frames=b"x")], INVALID, 422),
        ([START, START], INVALID, 422),
        ([pb.StoreChunk(start=pb.StoreStart(namespace="other"))], NOT_FOUND, 404),
        ([pb.StoreChunk(start=pb.StoreStart(namespace="ns", supersedes=bytes(3)))], INVALID, 422),
        ([START, pb.StoreChunk(frames=bytes(80))], INVALID, 400),
        ([START, pb.StoreChunk(frames=_header()[:-1])], INVALID, 400),
        ([START, pb.StoreChunk(frames=_header(kind=FrameKind.FALLBACK) + bytes(128))], INVALID, 400),
        ([START, pb.StoreChunk(frames=_header(miss=MissReason.EXPIRED) + bytes(128))], INVALID, 400),
        ([START, pb.StoreChunk(frames=_header(length_bytes=1 << 40))], INVALID, 400),
        ([START, pb.StoreChunk(frames=_header()[:-1] + b"\0")], grpc.StatusCode.DATA_LOSS, 400),
        ([START, pb.StoreChunk(frames=bytes(4 << 20))], INVALID, 413),
    ],
)
def test_a_store_that_breaks_off_is_refused(
    engine: GrpcEngine, chunks: list[pb.StoreChunk], code: grpc.StatusCode, status: int
) -> None:
    engine.register()
    with pytest.raises(RefusedError) as refused:
        engine.upload(chunks)
    assert (refused.value.code, refused.value.problem.status) == (code, status)


@pytest.mark.parametrize("whole", [0, 1, 2, 200])
def test_what_was_whole_before_a_store_broke_off_is_kept_and_said(engine: GrpcEngine, whole: int) -> None:
    engine.register()
    keys = engine.keys_of(tokens(201 * BLOCK))
    with pytest.raises(RefusedError) as refused:
        engine.store(blocks(keys[:whole]) + b"no frame" * 10)
    outcomes = refused.value.problem.outcomes
    assert [one.key.hex() for one in outcomes] == keys[: min(whole, 32)], "as many as go into a header"
    assert engine.plan(tokens(201 * BLOCK)).hit_tokens == whole * BLOCK


def test_a_payload_that_is_not_its_checksums_is_refused_alone(engine: GrpcEngine) -> None:
    engine.register()
    bad = _header(checksum=1) + bytes(128)
    answer = engine.store(bad + _header(key=bytes([1] * 32)) + bytes(128))
    assert [(one.outcome, one.reason) for one in answer.outcomes] == [("refused", "corrupt"), ("stored", "none")]


@pytest.fixture
def small(tmp_path: object) -> Iterator[GrpcEngine]:
    """A service with low bounds."""
    flags = {
        "grpc": {"port": 0},
        "lease": {"max_leases": 1},
        "limits": {
            "max_prompt_tokens": 1000, "max_list_items": 4, "max_store_records": 2, "max_namespaces": 1,
            "max_json_bytes": 1024,
        },
    }  # fmt: skip
    parts = make_parts(tmp_path, ManualClock(), settings=load_settings(flags=flags, environment={}))  # type: ignore[arg-type]
    with live(parts) as running, grpc_engine(running.grpc_url) as engine:
        engine.register()
        yield engine
    parts.close()


def test_bounds_are_those_of_rest(small: GrpcEngine) -> None:
    small.plan(struct.pack("<1000I", *range(1000)), request_id="a")
    keys = small.keys_of(b"") + [bytes([number] * 32).hex() for number in range(5)]
    for verb, request, code, status in (
        ("Plan", plan(tokens=bytes(4004)), INVALID, 413),
        ("Plan", plan(request_id="b"), grpc.StatusCode.UNAVAILABLE, 503),
        ("Hash", pb.HashRequest(namespace="ns", tokens=bytes(20)), INVALID, 413),
        ("Touch", pb.KeysRequest(namespace="ns", record_class="block", keys=[KEY] * 5), INVALID, 413),
    ):
        with pytest.raises(RefusedError) as refused:
            small.call(verb, request)
        assert (refused.value.code, refused.value.problem.status) == (code, status), verb
    with pytest.raises(RefusedError) as refused:
        small.store(blocks(keys[:3]))
    assert (refused.value.code, refused.value.problem.status) == (INVALID, 413)
    assert len(refused.value.problem.outcomes) == 2
    with pytest.raises(RefusedError) as refused:
        small.register("another")
    assert (refused.value.code, refused.value.problem.status) == (grpc.StatusCode.RESOURCE_EXHAUSTED, 507)


def test_a_message_over_all_bounds_is_not_taken(small: GrpcEngine) -> None:
    with pytest.raises(RefusedError) as refused:
        small.call("Plan", plan(tokens=bytes(1 << 20)))
    assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert small.plan(tokens(300)).plan.mode == "cold", "the connection lives on"


def test_what_is_worth_another_try_says_when(small: GrpcEngine) -> None:
    small.plan(tokens(300))
    with pytest.raises(RefusedError) as refused:
        small.plan(tokens(300))
    assert refused.value.code is grpc.StatusCode.UNAVAILABLE
    assert refused.value.details["RetryInfo"].retry_delay.seconds == 1
    assert refused.value.details["ErrorInfo"].domain == "kvshelf"
