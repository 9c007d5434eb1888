"""Plan, fetch, run, store, release over gRPC, and all that may go missing on the way."""

import json

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kvshelf_client.frames import FrameKind
from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from kvshelf_client.words import MissReason
from service.access import ANYBODY
from service.shelf.upkeep import upkeep_step
from storage.clock import ManualClock
from tests.support.damage import damage
from tests.support.engine import BLOCK, BLOCK_BYTES, SNAPSHOT_BYTES, blocks, frame, payload_of, snapshot, tokens
from tests.support.grpc_engine import GrpcEngine
from tests.support.live import Live


def test_a_namespace_is_registered_once(engine: GrpcEngine) -> None:
    made = engine.register()
    assert (made.created, made.block_bytes, made.snapshot_bytes, made.replay) == (True, 128, 2560, "bounded")
    again = engine.register()
    assert not again.created
    again.created = True
    assert again == made
    shown = engine.call("GetNamespace", pb.GetNamespaceRequest(name="ns"))
    assert shown.fingerprint == made.fingerprint
    assert engine.call("ListNamespaces", pb.ListNamespacesRequest()).namespaces == [shown]


def test_the_first_request_is_cold_and_says_why(engine: GrpcEngine) -> None:
    engine.register()
    planned = engine.plan(tokens(1000))
    assert planned.plan.mode == "cold"
    assert planned.plan.exact
    assert dict(planned.plan.tokens_by_source) == {"hbm": 0, "dram": 0, "ssd": 0, "replay": 0, "prefill": 1000}
    assert (planned.missing_global.tokens, planned.missing_global.reason) == (0, "never_stored")
    assert not planned.HasField("fallback")
    assert not planned.HasField("missing_snapshot")
    assert engine.fetch(planned) == []
    assert engine.release(planned)["prefill"] == 1000


def test_a_session_resumes_from_its_snapshot_and_gets_its_bytes(engine: GrpcEngine) -> None:
    engine.register()
    keys = engine.serve_cold(tokens(1000))
    planned = engine.plan(tokens(1100))
    found = planned.plan
    assert (found.mode, found.exact, found.run_start) == ("snapshot", True, 896)
    assert (found.load.global_start, found.load.global_end, found.load.snapshot_boundary) == (0, 896, 896)
    assert (found.load.ssd_bytes, found.load.dram_bytes) == (7 * BLOCK_BYTES, SNAPSHOT_BYTES)
    assert planned.fallback.mode == "bounded_replay"
    assert not planned.fallback.load.HasField("snapshot_boundary")
    frames = engine.fetch(planned)
    assert [header.kind for header, _ in frames] == [FrameKind.SNAPSHOT] + [FrameKind.BLOCK] * 7
    assert [header.end_tokens for header, _ in frames] == [896, *range(BLOCK, 897, BLOCK)]
    assert [payload for _, payload in frames[1:]] == [payload_of(key, BLOCK_BYTES) for key in keys]
    assert engine.release(planned) == {"hbm": 0, "dram": 0, "ssd": 896, "replay": 0, "prefill": 204}


def test_what_is_absent_takes_its_default_and_what_is_there_does_not(engine: GrpcEngine) -> None:
    engine.register()
    engine.serve_cold(tokens(1000))
    assert engine.plan(tokens(1100), allow_approximate=False).plan.mode == "snapshot"
    assert engine.plan(tokens(1100), supports=pb.Abilities()).plan.mode == "cold"
    assert engine.plan(tokens(1100), supports=pb.Abilities(names=["bounded_replay"])).plan.mode == "bounded_replay"
    held = engine.plan(tokens(1100), hbm_tokens=900, hbm_exact_tokens=900, hbm_state=True)
    assert (held.plan.mode, held.plan.run_start) == ("resident", 900)
    limited = engine.plan(tokens(1100), max_load_bytes_per_saved_token=0.0)
    assert (limited.plan.mode, limited.plan.load.ssd_bytes) == ("cold", 0)
    assert engine.plan(tokens(1100), lease_ttl_seconds=7.5).lease.ttl_seconds == 7.5
    assert engine.plan(tokens(1100), request_id="mine").request_id == "mine"


def test_hashes_ask_the_same_as_tokens(engine: GrpcEngine) -> None:
    engine.register()
    engine.serve_cold(tokens(1000))
    hashes = b"".join(map(bytes.fromhex, engine.keys_of(tokens(1100))))
    asked = engine.call("Plan", pb.PlanRequest(namespace="ns", hashes=hashes, prompt_tokens=1100))
    assert asked.plan.load == engine.plan(tokens(1100)).plan.load


def test_a_lost_snapshot_brings_the_fallback(engine: GrpcEngine, face: Live) -> None:
    engine.register()
    keys = engine.serve_cold(tokens(1000))
    planned = engine.plan(tokens(1100))
    damage(face.parts.snapshots, face.parts.namespaces.get(ANYBODY, "ns").record_id(bytes.fromhex(keys[6])))
    fell_back, frames = engine.download("Fetch", pb.FetchRequest(lease_id=planned.lease.lease_id))
    assert fell_back
    assert frames[0][0].kind is FrameKind.FALLBACK
    assert json.loads(frames[0][1])["plan_id"] == planned.fallback.plan_id
    assert [header.end_tokens for header, _ in frames[1:]] == list(range(BLOCK, 897, BLOCK))
    assert engine.release(planned) == {"hbm": 0, "dram": 0, "ssd": 768, "replay": 128, "prefill": 204}


def test_a_client_that_found_the_snapshot_bad_asks_for_the_fallback(engine: GrpcEngine) -> None:
    engine.register()
    engine.serve_cold(tokens(1000))
    planned = engine.plan(tokens(1100))
    assert engine.fetch(planned, fallback=True)[0][0].kind is FrameKind.FALLBACK


def test_a_damaged_block_is_a_miss_and_no_error(engine: GrpcEngine, face: Live) -> None:
    engine.register()
    keys = engine.serve_cold(tokens(1000))
    planned = engine.plan(tokens(1100))
    damage(face.parts.blocks, face.parts.namespaces.get(ANYBODY, "ns").record_id(bytes.fromhex(keys[3])))
    frames = engine.fetch(planned)
    assert [header.miss for header, _ in frames] == [None] * 4 + [MissReason.CORRUPT] + [None] * 3


def test_stores_have_an_outcome_a_record(engine: GrpcEngine) -> None:
    engine.register()
    keys = engine.keys_of(tokens(1000))
    planned = engine.plan(tokens(1000))
    first = engine.store(blocks(keys), plan_id=planned.plan.plan_id)
    assert dict(first.counts) == {"stored": 7}
    assert first.plan_known
    assert [outcome.provenance for outcome in first.outcomes] == ["exact"] * 7
    assert [outcome.key.hex() for outcome in first.outcomes] == keys
    again = engine.store(blocks(keys), relaxed=True)
    assert dict(again.counts) == {"duplicate": 7}
    assert not again.plan_known
    mixed = engine.store(blocks(keys[:1]) + snapshot(keys, 896))
    assert [(one.record_class, one.outcome) for one in mixed.outcomes] == [
        ("block", "duplicate"),
        ("snapshot", "stored"),
    ]


def test_a_used_snapshot_retires_the_one_it_supersedes(engine: GrpcEngine) -> None:
    engine.register()
    keys = engine.serve_cold(tokens(1000))
    planned = engine.plan(tokens(1200))
    longer = engine.keys_of(tokens(1200))
    frames = blocks(longer, 7) + snapshot(longer, 1152)
    engine.store(frames, plan_id=planned.plan.plan_id, supersedes=bytes.fromhex(keys[6]))
    engine.fetch(engine.plan(tokens(1300)))
    gone = engine.call(
        "LookAtRecord", pb.RecordRequest(namespace="ns", record_class="snapshot", key=bytes.fromhex(keys[6]))
    )
    assert gone.WhichOneof("found") == "miss"


@pytest.mark.parametrize("size", [1, 80, 81, 1 << 20])
def test_a_store_may_be_cut_anywhere(engine: GrpcEngine, size: int) -> None:
    engine.register()
    frames = blocks(engine.keys_of(tokens(600)))
    pieces = [frames[start : start + size] for start in range(0, len(frames), size)]
    start = pb.StoreStart(namespace="ns")
    chunks = [pb.StoreChunk(start=start, frames=pieces[0])] + [pb.StoreChunk(frames=piece) for piece in pieces[1:]]
    assert dict(engine.upload(chunks).counts) == {"stored": 4}


def test_records_are_read_looked_at_touched_and_deleted(engine: GrpcEngine) -> None:
    engine.register()
    keys = engine.serve_cold(tokens(1000))
    wanted = pb.RecordRequest(namespace="ns", record_class="block", key=bytes.fromhex(keys[2]))
    _, [(header, payload)] = engine.download("ReadRecord", wanted)
    assert payload == payload_of(keys[2], BLOCK_BYTES)
    looked = engine.call("LookAtRecord", wanted).entry
    assert (looked.length_bytes, looked.checksum, looked.provenance, looked.generation) == (
        BLOCK_BYTES, header.checksum, "exact", header.generation,
    )  # fmt: skip
    many = pb.KeysRequest(namespace="ns", record_class="block", keys=[bytes.fromhex(key) for key in keys[:3]])
    assert engine.call("Touch", many).records == 3
    assert engine.call("DeleteRecord", wanted).records == 1
    assert engine.call("DeleteRecord", wanted).records == 0
    assert engine.call("Delete", many).records == 2
    _, [(miss, filler)] = engine.download("ReadRecord", wanted)
    assert (miss.miss, filler) == (MissReason.NEVER_STORED, b"")
    assert engine.call("LookAtRecord", wanted).miss == "never_stored"


def test_a_large_record_comes_in_pieces(engine: GrpcEngine) -> None:
    made = engine.register(bytes_per_token=20_000)
    assert made.block_bytes > 2 << 20
    keys = engine.keys_of(tokens(300))
    payloads = [payload_of(key, made.block_bytes) for key in keys]
    frames = b"".join(frame(keys[at], (at + 1) * BLOCK, payload=payloads[at]) for at in range(2))
    pieces = [frames[start : start + (1 << 20)] for start in range(0, len(frames), 1 << 20)]
    chunks = [pb.StoreChunk(start=pb.StoreStart(namespace="ns"))] + [pb.StoreChunk(frames=piece) for piece in pieces]
    assert dict(engine.upload(chunks).counts) == {"stored": 2}
    wanted = pb.RecordRequest(namespace="ns", record_class="block", key=bytes.fromhex(keys[1]))
    assert engine.download("ReadRecord", wanted)[1][0][1] == payloads[1]
    assert max(len(chunk.frames) for chunk in engine.stream("ReadRecord", wanted)) == 1 << 20
    planned = engine.plan(tokens(600))
    assert [payload for _, payload in engine.fetch(planned)] == payloads
    chunks = list(engine.stream("Fetch", pb.FetchRequest(lease_id=planned.lease.lease_id)))
    assert max(len(chunk.frames) for chunk in chunks) == 1 << 20


def test_a_lease_is_renewed_and_ends(engine: GrpcEngine, face: Live, clock: ManualClock) -> None:
    engine.register()
    planned = engine.plan(tokens(1000))
    clock.advance(50)
    assert engine.call("Renew", pb.RenewRequest(lease_id=planned.lease.lease_id)).ttl_seconds == 60
    clock.advance(50)
    upkeep_step(face.parts)
    assert engine.release(planned, ran="cold")["prefill"] == 1000


def test_statistics_and_health(engine: GrpcEngine) -> None:
    engine.register()
    stats = engine.call("Stats", pb.StatsRequest()).stats
    assert stats["namespaces"] == 1
    assert stats["health"]["status"] == "ok"
    stub = health_pb2_grpc.HealthStub(engine.channel)
    for name in ("", "kvshelf.v1.Kvshelf"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_calls_are_timed_by_verb(engine: GrpcEngine, face: Live) -> None:
    engine.register()
    planned = engine.plan(tokens(1000))
    engine.fetch(planned)
    engine.release(planned)
    for verb in ("register", "plan", "fetch", "release"):
        sample = "kvshelf_request_duration_seconds_count"
        assert face.parts.metrics.registry.get_sample_value(sample, {"verb": verb}) == 1, verb
