"""What the client sends for each verb, and what it makes of the answers."""

import json
from collections.abc import Iterator

import pytest

from kvshelf_client.client import Client, fallback_of
from kvshelf_client.errors import FrameError, ServiceError, UnreachableError
from kvshelf_client.frames import MEDIA_TYPE, Frame, FrameAssembler, FrameHeader, FrameKind, checksum_of, pack_header
from kvshelf_client.http.codec import HASHES_MEDIA_TYPE
from kvshelf_client.requests import NamespaceSpec, StoreRecord
from kvshelf_client.words import MissReason, Provenance, RecordClass
from tests.support.scripted_server import Reply, ScriptedServer, answer

_RESUME: dict[str, object] = {
    "plan_id": "p1",
    "mode": "bounded_replay",
    "exact": False,
    "prompt_tokens": 1000,
    "matched_tokens": 768,
    "run_start": 640,
    "write_floor": 768,
    "decoder_run_start": 872,
    "replayed_tokens": 128,
    "saved_tokens": 640,
    "held_tokens": 0,
    "load": {"global": [0, 768], "snapshot": None},
    "load_bytes": {"ssd": 683_520, "dram": 0},
    "tokens_by_source": {"hbm": 0, "dram": 0, "ssd": 640, "replay": 128, "prefill": 232},
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


def _frame(payload: bytes, key: bytes = bytes(32), **changes: object) -> bytes:
    header = FrameHeader(FrameKind.BLOCK, key, len(payload), checksum_of(payload), Provenance.EXACT, 0, 64, 7)
    return pack_header(header._replace(**changes)) + payload  # type: ignore[arg-type]


def _frames_answer(*frames: bytes, cut_bytes: int = 0) -> Reply:
    whole = answer(b"".join(frames), content_type=MEDIA_TYPE)
    return Reply(whole[: len(whole) - cut_bytes], close=bool(cut_bytes))


def _fetch(reply: Reply) -> tuple[list[Frame], ScriptedServer]:
    with ScriptedServer([reply]) as server, Client(server.url, max_payload_bytes=1000) as client:
        return list(client.fetch("l/1", shard=2)), server


def test_register() -> None:
    body = {
        "name": "a/b",
        "fingerprint": "ab" * 32,
        "layout_id": "x",
        "block_tokens": 64,
        "hashes_per_block": 1,
        "shards": 2,
        "block_bytes": 64,
        "snapshot_bytes": 128,
        "window_tokens": 128,
        "state_layers": 20,
        "replay": "bounded",
    }
    replies = [Reply(answer(json.dumps(body).encode(), status)) for status in ("201 Created", "200 OK")]
    spec = NamespaceSpec("t", "m", "w", "llama", block_tokens=64, bytes_per_token=1, salt="s", shards=2)
    with ScriptedServer(replies) as server, Client(server.url) as client:
        first, second = client.register_namespace("a/b", spec), client.register_namespace("a/b", spec)
    assert (first.created, second.created) == (True, False)
    assert first._replace(created=False) == second
    assert first.fingerprint == b"\xab" * 32
    assert (server.seen[0].method, server.seen[0].target) == ("PUT", "/v1/namespaces/a%2Fb")
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
    body = {"fingerprint": "00" * 32, "block_tokens": 1, "keys": ["01" * 32, "02" * 32]}
    with ScriptedServer([Reply(answer(json.dumps(body).encode()))]) as server, Client(server.url) as client:
        hashed = client.hash_tokens("n", memoryview(bytes(8)))
    assert hashed.keys == [b"\x01" * 32, b"\x02" * 32]
    assert (server.seen[0].target, server.seen[0].body) == ("/v1/namespaces/n/hash", bytes(8))


def test_plan_by_hashes() -> None:
    replies = [Reply(answer(json.dumps(_PLAN).encode()))] * 2
    hashes = [b"a" * 32, b"b" * 32]
    with ScriptedServer(replies) as server, Client(server.url) as client:
        plan = client.plan(
            "n", hashes=hashes, prompt_tokens=1000, request_id="r 1", hbm_state=True, supports=["snapshot"]
        )
        assert client.plan("n", hashes=b"".join(hashes), prompt_tokens=1000, request_id="2") == plan
    assert (plan.request_id, plan.hit_tokens, plan.exact_hit_tokens) == ("r1", 896, 0)
    assert plan.lease == ("l1", 60.0, 6)
    assert plan.resume.plan_id == "p1"
    assert plan.resume.load == (0, 768, None, 683_520, 0)
    assert sum(plan.resume.tokens_by_source.values()) == 1000
    assert plan.fallback == plan.resume._replace(plan_id="p2")
    assert plan.missing_global == (896, MissReason.NEVER_STORED)
    assert plan.missing_snapshot == (768, MissReason.EXPIRED)
    first, second = server.seen
    assert first.target == "/v1/namespaces/n/plan?request_id=r+1&prompt_tokens=1000&hbm_state=true&supports=snapshot"
    assert second.target == "/v1/namespaces/n/plan?request_id=2&prompt_tokens=1000"
    assert first.body == second.body == b"".join(hashes)
    assert first.headers["content-type"] == HASHES_MEDIA_TYPE


def test_plan_by_tokens_without_fallback_or_reasons() -> None:
    body = {**_PLAN, "fallback": None, "reasons": {"global": None, "snapshot": None}}
    with ScriptedServer([Reply(answer(json.dumps(body).encode()))]) as server, Client(server.url) as client:
        plan = client.plan("n", tokens=bytes(4000), extra=b"\x01", request_id="1")
    assert plan.fallback is None
    assert plan[6:] == (None, None)
    assert server.seen[0].target == "/v1/namespaces/n/plan?request_id=1&prompt_tokens=1000&extra=01"
    assert server.seen[0].headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize("what", [{}, {"tokens": b"", "hashes": []}, {"hashes": []}])
def test_plan_wants_tokens_or_hashes(what: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="tokens, or hashes and prompt_tokens"):
        Client("http://127.0.0.1:1").plan("n", **what)  # type: ignore[arg-type]


def test_fetch_reads_every_frame() -> None:
    frames, server = _fetch(_frames_answer(_frame(b"x" * 1000), _frame(b"", b"k" * 32), _frame(b"yz")))
    assert [bytes(frame.payload) for frame in frames] == [b"x" * 1000, b"", b"yz"]
    assert frames[1].header.key == b"k" * 32
    assert [frame.header.miss for frame in frames] == [None] * 3
    assert server.seen[0].target == "/v1/leases/l%2F1/fetch?shard=2"


def test_fetch_of_nothing() -> None:
    assert _fetch(_frames_answer())[0] == []


def test_fetch_marks_a_payload_with_a_wrong_checksum_and_goes_on() -> None:
    bad = bytearray(_frame(b"payload"))
    bad[-1] ^= 1
    frames, _ = _fetch(_frames_answer(bytes(bad), _frame(b"good")))
    assert [frame.header.miss for frame in frames] == [MissReason.CORRUPT, None]


def test_fetch_leaves_a_miss_as_it_is() -> None:
    frames, _ = _fetch(_frames_answer(_frame(bytes(9), checksum=1, miss=MissReason.EVICTED)))
    assert frames[0].header.miss is MissReason.EVICTED


def test_fetch_stops_at_what_is_no_frame() -> None:
    with pytest.raises(FrameError):
        _fetch(_frames_answer(_frame(b"good"), bytes(80)))


def test_fetch_refuses_a_payload_over_the_bound() -> None:
    with pytest.raises(FrameError, match="over 1000 bytes"):
        _fetch(_frames_answer(_frame(bytes(1001))))


@pytest.mark.parametrize("cut_bytes", [1, 4, 5, 84])
def test_fetch_of_a_stream_that_breaks_off(cut_bytes: int) -> None:
    """In a payload, at its start, in a header, and between two frames."""
    with pytest.raises(UnreachableError, match="the stream ended"):
        _fetch(_frames_answer(_frame(b"good"), _frame(b"late"), cut_bytes=cut_bytes))


def test_the_fallback_in_a_frame() -> None:
    payload = json.dumps(_RESUME).encode()
    frames, _ = _fetch(_frames_answer(_frame(payload, kind=FrameKind.FALLBACK, provenance=None)))
    assert fallback_of(frames[0]).run_start == 640
    with pytest.raises(FrameError):
        fallback_of(Frame(frames[0].header._replace(miss=MissReason.CORRUPT), frames[0].payload))


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

    outcome = {"key": "61" * 32, "shard": 1, "class": "block", "outcome": "refused", "reason": "below_write_floor"}
    body = {"outcomes": [outcome], "counts": {"refused": 1}, "plan_known": generated}
    with ScriptedServer([Reply(answer(json.dumps(body).encode()))]) as server, Client(server.url) as client:
        result = client.store(
            "n", one_by_one() if generated else _RECORDS, plan_id="p1", durable=False, supersedes=b"\xcc" * 32
        )
    assert result.counts == {"refused": 1}
    assert result.plan_known is generated
    assert result.outcomes[0] == (b"a" * 32, 1, "block", "refused", "below_write_floor", None, 0)
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
    replies = [Reply(answer(b'{"records": 1}')), Reply(answer(b'{"records": 2}')), Reply(answer(b"{}"))]
    replies.append(Reply(b"HTTP/1.1 204 No Content\r\n\r\n"))
    with ScriptedServer(replies) as server, Client(server.url) as client:
        assert client.touch("n", RecordClass.SNAPSHOT, [b"a" * 32]) == 1
        assert client.delete("n", RecordClass.BLOCK, iter([b"a" * 32, b"b" * 32])) == 2
        client.renew("l1")
        client.release("l1", ran="fallback")
    assert [(seen.method, seen.target) for seen in server.seen] == [
        ("POST", "/v1/namespaces/n/touch"),
        ("POST", "/v1/namespaces/n/delete"),
        ("POST", "/v1/leases/l1/touch"),
        ("DELETE", "/v1/leases/l1?ran=fallback"),
    ]
    assert json.loads(server.seen[0].body) == {"class": "snapshot", "keys": ["61" * 32]}
    assert {seen.connection for seen in server.seen} == {0}


@pytest.mark.parametrize(("fallback", "query"), [(True, "?shard=2&fallback=true"), (False, "?shard=2")])
def test_fetch_asks_for_the_fallback(fallback: bool, query: str) -> None:
    with ScriptedServer([_frames_answer()]) as server, Client(server.url) as client:
        assert list(client.fetch("l1", shard=2, fallback=fallback)) == []
    assert server.seen[0].target == "/v1/leases/l1/fetch" + query


_GONE = Reply(answer(b'{"detail": "no lease l1"}', "404 Not Found"))


def test_a_release_that_is_done_before_its_retry_is_done() -> None:
    """The connection, kept from the call before, breaks when the release has arrived and nothing was answered yet."""
    with ScriptedServer([Reply(answer(b"{}")), Reply(b"", close=True), _GONE]) as server, Client(server.url) as client:
        client.stats()
        client.release("l1")
    assert [(seen.connection, seen.method) for seen in server.seen] == [(0, "GET"), (0, "DELETE"), (1, "DELETE")]


def test_a_release_of_an_unknown_lease_is_an_error() -> None:
    with ScriptedServer([Reply(answer(b"{}")), _GONE]) as server, Client(server.url) as client:
        client.stats()
        with pytest.raises(ServiceError, match="no lease l1") as caught:
            client.release("l1")
    assert not caught.value.retried


def test_another_error_of_a_retried_release_is_raised() -> None:
    stopping = Reply(answer(b"{}", "503 Service Unavailable"))
    with (
        ScriptedServer([Reply(answer(b"{}")), Reply(b"", close=True), stopping]) as server,
        Client(server.url) as client,
    ):
        client.stats()
        with pytest.raises(ServiceError, match="503") as caught:
            client.release("l1")
    assert caught.value.retried


def test_health() -> None:
    reply = Reply(answer(b'{"status": "degraded", "causes": ["the pool does not answer"]}'))
    with ScriptedServer([reply]) as server, Client(server.url) as client:
        assert client.health() == ("degraded", ["the pool does not answer"])
