"""What the client sends over HTTP for each verb, and what it makes of the answers."""

import json
from collections.abc import Iterator

import pytest

from kvshelf_client import Client, Fault, NamespaceSpec, StoreRecord
from kvshelf_client.frames import MEDIA_TYPE, FrameAssembler, FrameHeader, FrameKind, checksum_of
from kvshelf_client.http.codec import HASHES_MEDIA_TYPE
from kvshelf_client.words import MissReason, Provenance, RecordClass
from tests.support.client import Buffers, registered
from tests.support.scripted_server import Reply, ScriptedServer, answer
from tests.support.wire import (
    NAMESPACE,
    block_frame,
    fallback_frame,
    plan_for,
    resume,
    snapshot_answer,
    snapshot_frame,
)

_RESUME: dict[str, object] = {
    "plan_id": "p1",
    "mode": "bounded_replay",
    "exact": False,
    "prompt_tokens": 1000,
    "matched_tokens": 768,
    "run_start": 704,
    "write_floor": 768,
    "decoder_run_start": 1000,
    "replayed_tokens": 64,
    "saved_tokens": 704,
    "held_tokens": 0,
    "load": {"global": [0, 768], "snapshot": None},
    "load_bytes": {"ssd": 7680, "dram": 0},
    "tokens_by_source": {"hbm": 0, "dram": 0, "ssd": 704, "replay": 64, "prefill": 232},
    "a_field_of_a_later_version": 1,
}
_PLAN: dict[str, object] = {
    "request_id": "r1",
    "lease": {"lease_id": "l1", "ttl_seconds": 60.0, "records": 6},
    "plan": _RESUME,
    "fallback": {**_RESUME, "plan_id": "p2"},
    "hit_tokens": 896,
    "exact_hit_tokens": 0,
    "reasons": {
        "global": {"tokens": 896, "reason": "never_stored"},
        "snapshot": {"boundary_tokens": 768, "reason": "expired"},
    },
}


def test_register() -> None:
    body = {
        "name": "a.b",
        "fingerprint": "ab" * 32,
        "layout_id": "x",
        "block_tokens": 64,
        "hashes_per_block": 1,
        "shards": 2,
        "block_bytes": 64,
        "snapshot_bytes": 128,
        "window_tokens": 128,
        "state_layers": 20,
        "decoder_window_tokens": 128,
        "hash_scheme": "kvshelf-sha256",
        "replay": "bounded",
    }
    replies = [Reply(answer(json.dumps(body).encode(), status)) for status in ("201 Created", "200 OK")]
    spec = NamespaceSpec("t", "m", "w", "llama", block_tokens=64, bytes_per_token=1, salt="s", shards=2)
    with ScriptedServer(replies) as server, Client(server.url) as client:
        first, second = registered(client, "a.b", spec), registered(client, "a.b", spec)
    assert (first.created, second.created) == (True, False)
    assert first._replace(created=False) == second
    assert first.fingerprint == b"\xab" * 32
    assert (server.seen[0].method, server.seen[0].target) == ("PUT", "/v1/namespaces/a.b")
    assert json.loads(server.seen[0].body) == {
        "tenant": "t",
        "model": "m",
        "weights_revision": "w",
        "profile": "llama",
        "block_tokens": 64,
        "bytes_per_token": 1,
        "hash_scheme": "kvshelf-sha256",
        "hash_block_tokens": None,
        "salt": "s",
        "shards": 2,
    }


def test_hash_tokens() -> None:
    body = {"fingerprint": "00" * 32, "block_tokens": 64, "keys": ["01" * 32, "02" * 32]}
    with ScriptedServer([Reply(answer(json.dumps(body).encode()))]) as server, Client(server.url) as client:
        hashed = client.hash_tokens(NAMESPACE, memoryview(bytes(512)))
    assert hashed is not None
    assert hashed.keys == [b"\x01" * 32, b"\x02" * 32]
    assert (server.seen[0].target, server.seen[0].body) == ("/v1/namespaces/n/hash", bytes(512))


def test_plan_by_hashes() -> None:
    replies = [Reply(answer(json.dumps(_PLAN | {"request_id": name}).encode())) for name in ("r 1", "2")]
    hashes = [b"a" * 32, b"b" * 32]
    with ScriptedServer(replies) as server, Client(server.url) as client:
        plan = client.plan(
            NAMESPACE, hashes=hashes, prompt_tokens=1000, request_id="r 1", hbm_state=True, supports=["bounded_replay"]
        )
        again = client.plan(NAMESPACE, hashes=b"".join(hashes), prompt_tokens=1000, request_id="2")
        assert (again.resume, again.lease) == (plan.resume, plan.lease)
    assert (plan.request_id, plan.hit_tokens, plan.exact_hit_tokens, plan.fault) == ("r 1", 896, 0, None)
    assert plan.keys == hashes
    assert plan.lease == ("l1", 60.0, 6)
    assert plan.resume.plan_id == "p1"
    assert plan.resume.load == (0, 768, None, 7680, 0)
    assert sum(plan.resume.tokens_by_source.values()) == 1000
    assert plan.fallback == plan.resume._replace(plan_id="p2")
    assert plan.missing_global == (896, MissReason.NEVER_STORED)
    assert plan.missing_snapshot == (768, MissReason.EXPIRED)
    first, second = server.seen
    assert (
        first.target == "/v1/namespaces/n/plan?request_id=r+1&prompt_tokens=1000&hbm_state=true&supports=bounded_replay"
    )
    assert second.target == "/v1/namespaces/n/plan?request_id=2&prompt_tokens=1000"
    assert first.body == second.body == b"".join(hashes)
    assert first.headers["content-type"] == HASHES_MEDIA_TYPE


def test_plan_by_tokens_without_fallback_or_reasons() -> None:
    body = {**_PLAN, "request_id": "1", "fallback": None, "reasons": {"global": None, "snapshot": None}}
    with ScriptedServer([Reply(answer(json.dumps(body).encode()))]) as server, Client(server.url) as client:
        plan = client.plan(NAMESPACE, tokens=bytes(4000), extra=b"\x01", request_id="1")
    assert plan.fallback is None
    assert (plan.missing_global, plan.missing_snapshot) == (None, None)
    assert server.seen[0].target == "/v1/namespaces/n/plan?request_id=1&prompt_tokens=1000&extra=01"
    assert server.seen[0].headers["content-type"] == "application/octet-stream"


_RECORDS = [
    StoreRecord(RecordClass.SNAPSHOT, b"s" * 32, 128, b"state", Provenance.REPLAYED),
    StoreRecord(RecordClass.BLOCK, b"a" * 32, 64, memoryview(bytes(range(256)) * 200), Provenance.EXACT, 1),
    StoreRecord(RecordClass.BLOCK, b"b" * 32, 128, bytearray(10), Provenance.EXACT, 1),
    *(StoreRecord(RecordClass.BLOCK, bytes([n]) * 32, n, bytes(15_000), Provenance.EXACT) for n in range(20)),
]


@pytest.mark.parametrize("generated", [False, True])
def test_store(generated: bool) -> None:
    def one_by_one() -> Iterator[StoreRecord]:
        yield from _RECORDS

    refused = {"outcome": "refused", "reason": "below_write_floor"}
    outcomes = [
        {"key": record.key.hex(), "shard": record.shard, "class": record.record_class.name.lower(), **refused}
        for record in _RECORDS
    ]
    body = {"outcomes": outcomes, "counts": {"refused": len(_RECORDS)}, "plan_known": generated}
    with ScriptedServer([Reply(answer(json.dumps(body).encode()))]) as server, Client(server.url) as client:
        result = client.store(
            NAMESPACE, one_by_one() if generated else _RECORDS, ran=resume(), durable=False, supersedes=b"\xcc" * 32
        )
    assert result.counts == {"refused": len(_RECORDS)}
    assert result.plan_known is generated
    assert result.outcomes[1] == (b"a" * 32, 1, "block", "refused", "below_write_floor", None, 0)
    seen = server.seen[0]
    assert seen.target == f"/v1/namespaces/n/store?plan_id=p1&durability=relaxed&supersedes={'cc' * 32}"
    frames = list(FrameAssembler(1 << 20).feed(seen.body))
    assert [bytes(frame.payload) for frame in frames] == [bytes(record.payload) for record in _RECORDS]
    for frame, record in zip(frames, _RECORDS, strict=True):
        assert frame.header == FrameHeader(
            FrameKind(record.record_class),
            record.key,
            memoryview(record.payload).nbytes,
            checksum_of(bytes(record.payload)),
            record.provenance,
            record.shard,
            record.end_tokens,
        )


def test_touch_delete_renew_and_release() -> None:
    replies = [Reply(answer(b'{"records": 1}')), Reply(answer(b'{"records": 2}'))]
    replies.append(Reply(answer(b'{"lease_id": "l1", "ttl_seconds": 60, "records": 5}')))
    replies.append(Reply(answer(b'{"tokens_by_source": {"ssd": 256, "prefill": 744}}')))
    plan = plan_for(snapshot_answer())
    with ScriptedServer(replies) as server, Client(server.url, strict=True) as client:
        assert client.touch(NAMESPACE, RecordClass.SNAPSHOT, [b"a" * 32]) == 1
        assert client.delete(NAMESPACE, RecordClass.BLOCK, iter([b"a" * 32, b"b" * 32])) == 2
        assert client.renew(plan)
        assert client.release(plan, plan.resume)
    assert [(seen.method, seen.target) for seen in server.seen] == [
        ("POST", "/v1/namespaces/n/touch"),
        ("POST", "/v1/namespaces/n/delete"),
        ("POST", "/v1/leases/l1/touch"),
        ("DELETE", "/v1/leases/l1?ran=plan"),
    ]
    assert json.loads(server.seen[0].body) == {"class": "snapshot", "keys": ["61" * 32]}
    assert {seen.connection for seen in server.seen} == {0}


def _frames(*frames: bytes, cut_bytes: int = 0) -> Reply:
    whole = answer(b"".join(frames), content_type=MEDIA_TYPE)
    return Reply(whole[: len(whole) - cut_bytes], close=bool(cut_bytes))


def test_fetch_of_one_shard_and_of_the_fallback() -> None:
    namespace = NAMESPACE._replace(shards=3)
    plan = plan_for(snapshot_answer(), namespace)
    blocks = [block_frame(number, shard=2) for number in range(4)]
    bad = snapshot_frame(shard=2, checksum=1)
    replies = [_frames(bad, *blocks), _frames(fallback_frame(), *blocks)]
    with ScriptedServer(replies) as server, Client(server.url) as client:
        loaded = client.fetch_into(plan, Buffers(namespace), shard=2)
    assert loaded.resume is plan.fallback
    assert [seen.target for seen in server.seen] == [
        "/v1/leases/l1/fetch?shard=2",
        "/v1/leases/l1/fetch?shard=2&fallback=true",
    ]
    assert server.seen[0].headers["accept"] == MEDIA_TYPE
    assert [seen.connection for seen in server.seen] == [0, 1], "what is left unread is read by nobody"


@pytest.mark.parametrize("cut_bytes", [1, 640, 641, 719, 720, 1440])
def test_fetch_of_a_stream_that_breaks_off(cut_bytes: int) -> None:
    """In a payload, at its start, in a header, and between two frames."""
    plan = plan_for(snapshot_answer())
    reply = _frames(snapshot_frame(), *map(block_frame, range(4)), cut_bytes=cut_bytes)
    with ScriptedServer([reply] * 3) as server, Client(server.url) as client:
        loaded = client.fetch_into(plan, Buffers(NAMESPACE))
    assert loaded.fault is Fault.UNREACHABLE
    assert loaded.verified_tokens == (3 if cut_bytes <= 720 else 2) * 64
    assert loaded.resume.matched_tokens == loaded.verified_tokens


@pytest.mark.parametrize("rubbish", [bytes(80), bytes(79), block_frame(0)[:80].replace(b"KVSF", b"KVSG")])
def test_fetch_stops_at_what_is_no_frame(rubbish: bytes) -> None:
    reply = _frames(snapshot_frame(), block_frame(0), rubbish)
    plan = plan_for(snapshot_answer())
    with ScriptedServer([reply]) as server, Client(server.url) as client:
        loaded = client.fetch_into(plan, Buffers(NAMESPACE))
    assert (loaded.fault, loaded.verified_tokens) == (Fault.MALFORMED, 64)


def test_another_wire_version_is_a_miss_with_that_reason() -> None:
    header = bytearray(block_frame(0)[:72])
    header[4] = 2
    frames = _frames(bytes(header) + checksum_of(header).to_bytes(8, "little"))
    with ScriptedServer([frames]) as server, Client(server.url) as client:
        loaded = client.fetch_into(plan_for(snapshot_answer()), Buffers(NAMESPACE))
    assert loaded.fault is Fault.VERSION


def test_health() -> None:
    reply = Reply(answer(b'{"status": "degraded", "causes": ["the pool does not answer"]}'))
    with ScriptedServer([reply]) as server, Client(server.url) as client:
        assert client.health() == ("degraded", ["the pool does not answer"])
