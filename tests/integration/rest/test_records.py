"""Single records over HTTP: ETag, Range, conditional writes, deletes."""

import asyncio
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.rest.app import create_app
from storage.clock import ManualClock
from tests.simulation.pool import RemotePool
from tests.support.engine import BLOCK, BLOCK_BYTES, SNAPSHOT_BYTES, keys_of, register, tokens
from tests.support.live import Live, live
from tests.support.service import make_parts

OCTETS = {"content-type": "application/octet-stream"}
PAYLOAD = bytes(range(BLOCK_BYTES))


@pytest.fixture
def path(http: httpx.Client) -> str:
    """A block that is stored."""
    register(http)
    path = f"/v1/namespaces/ns/records/block/{keys_of(http, tokens(BLOCK))[0]}"
    answer = http.put(path, params={"end_tokens": BLOCK}, content=PAYLOAD, headers=OCTETS)
    assert answer.status_code == 201, answer.text
    return path


def test_write_then_read_with_a_strong_etag(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert (answer.status_code, answer.content) == (200, PAYLOAD)
    assert answer.headers["etag"].startswith('"')
    assert answer.headers["kvshelf-provenance"] == "replayed"
    head = http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(BLOCK_BYTES)
    assert head.headers["etag"] == answer.headers["etag"]
    assert http.get(path, headers={"if-none-match": answer.headers["etag"]}).status_code == 304


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-9", 5, 10),
        ("bytes=100-", 100, 128),
        ("bytes=-3", 125, 128),
        ("bytes=0-999", 0, 128),
    ],
)
def test_a_range_is_a_part(http: httpx.Client, path: str, asked: str, start: int, stop: int) -> None:
    answer = http.get(path, headers={"range": asked})
    assert (answer.status_code, answer.content) == (206, PAYLOAD[start:stop])
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{BLOCK_BYTES}"


@pytest.mark.parametrize("asked", ["bytes=128-", "bytes=-0", "bytes=999999999999999999-"])
def test_a_range_beyond_the_record_is_a_416(http: httpx.Client, path: str, asked: str) -> None:
    answer = http.get(path, headers={"range": asked})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{BLOCK_BYTES}"


@pytest.mark.parametrize(
    "asked",
    ["bytes=9-5", "bytes=-", "bytes=0-1,3-4", "lines=1-2", "bytes=0-" + "9" * 5000, "bytes=" + "9" * 5000 + "-"],
)
def test_what_is_no_range_is_ignored(http: httpx.Client, path: str, asked: str) -> None:
    answer = http.get(path, headers={"range": asked})
    assert (answer.status_code, answer.content) == (200, PAYLOAD)


def test_what_the_caller_has_is_not_sent(http: httpx.Client, path: str) -> None:
    etag = http.get(path).headers["etag"]
    for known in (etag, f"W/{etag}", "*", f'"other", {etag}'):
        for method in ("GET", "HEAD"):
            assert http.request(method, path, headers={"if-none-match": known}).status_code == 304
    assert http.get(path, headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    ("query", "reason", "field"),
    [
        ({"end_tokens": BLOCK + 1}, "no_boundary", "query.end_tokens"),
        ({"end_tokens": BLOCK, "shard": 1}, "wrong_shard", "query.shard"),
    ],
)
def test_a_refusal_names_the_field_at_fault(
    http: httpx.Client, path: str, query: dict[str, int], reason: str, field: str
) -> None:
    answer = http.put(path, params=query, content=PAYLOAD, headers=OCTETS)
    assert (answer.status_code, answer.json()["reason"]) == (422, reason)
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_a_snapshot_of_a_profile_without_any_is_refused(http: httpx.Client) -> None:
    register(http, profile="llama-3-8b/bf16")
    path = f"/v1/namespaces/ns/records/snapshot/{'ab' * 32}"
    answer = http.put(path, params={"end_tokens": BLOCK}, content=PAYLOAD, headers=OCTETS)
    assert (answer.status_code, answer.json()["reason"]) == (422, "wrong_class")


def test_the_first_writer_wins(http: httpx.Client, path: str) -> None:
    other = bytes(BLOCK_BYTES)
    again = http.put(path, params={"end_tokens": BLOCK}, content=other, headers=OCTETS)
    assert (again.status_code, again.json()["outcome"]) == (200, "duplicate")
    once = http.put(path, params={"end_tokens": BLOCK}, content=other, headers=OCTETS | {"if-none-match": "*"})
    assert once.status_code == 412
    assert http.get(path).content == PAYLOAD


def test_a_better_record_has_another_etag(http: httpx.Client) -> None:
    register(http, profile="llama-3-8b/bf16")
    path = f"/v1/namespaces/ns/records/block/{keys_of(http, tokens(BLOCK))[0]}"
    first = http.put(path, params={"end_tokens": BLOCK, "provenance": "replayed"}, content=PAYLOAD, headers=OCTETS)
    better = http.put(path, params={"end_tokens": BLOCK, "provenance": "exact"}, content=PAYLOAD, headers=OCTETS)
    assert (first.status_code, better.status_code, better.json()["outcome"]) == (201, 201, "replaced")
    assert first.headers["etag"] != better.headers["etag"]
    assert http.get(path).headers["etag"] == better.headers["etag"]


@pytest.mark.parametrize("size", [0, BLOCK_BYTES - 1])
def test_a_payload_of_another_size_is_a_422(http: httpx.Client, path: str, size: int) -> None:
    key = "ab" * 32
    answer = http.put(
        f"/v1/namespaces/ns/records/block/{key}", params={"end_tokens": BLOCK}, content=bytes(size), headers=OCTETS
    )
    assert (answer.status_code, answer.json()["reason"]) == (422, "wrong_size")


def test_a_payload_over_the_size_is_a_413(http: httpx.Client, path: str) -> None:
    answer = http.put(path, params={"end_tokens": BLOCK}, content=bytes(BLOCK_BYTES + 1), headers=OCTETS)
    assert answer.status_code == 413


def test_a_deleted_record_is_gone(http: httpx.Client, path: str) -> None:
    assert http.delete(path).status_code == 204
    gone = http.get(path)
    assert (gone.status_code, gone.headers["content-type"]) == (404, "application/problem+json")
    assert gone.headers["kvshelf-miss"] == gone.json()["reason"]
    assert http.delete(path).status_code == 404


def test_snapshots_are_another_class(http: httpx.Client, path: str) -> None:
    snapshot = path.replace("/block/", "/snapshot/")
    assert http.get(snapshot).status_code == 404
    body = bytes(SNAPSHOT_BYTES)
    assert http.put(snapshot, params={"end_tokens": BLOCK}, content=body, headers=OCTETS).status_code == 201
    assert http.get(snapshot).content == body
    assert http.get(path).content == PAYLOAD


@pytest.mark.parametrize("key", ["00", "zz" * 32, "AB" * 32])
def test_a_key_is_64_lower_case_hexadecimal_digits(http: httpx.Client, path: str, key: str) -> None:
    answer = http.get(f"/v1/namespaces/ns/records/block/{key}")
    assert answer.status_code == 422
    assert "key" in answer.json()["detail"]


def test_many_are_renewed_and_deleted_at_once(http: httpx.Client, path: str) -> None:
    key = path.rpartition("/")[2]
    body = {"class": "block", "keys": [key, "00" * 32]}
    assert http.post("/v1/namespaces/ns/touch", json=body).json() == {"records": 1}
    assert http.post("/v1/namespaces/ns/delete", json=body).json() == {"records": 1}
    assert http.post("/v1/namespaces/ns/delete", json=body).json() == {"records": 0}


@pytest.fixture
def pool(clock: ManualClock) -> RemotePool:
    return RemotePool(clock=clock, ttl_seconds=300, budget_bytes=1 << 20, name="dram")


@pytest.fixture
def away(tmp_path: Path, clock: ManualClock, pool: RemotePool) -> Iterator[httpx.Client]:
    """A face whose pool can be away."""
    parts = make_parts(tmp_path / "away", clock, snapshots=pool)
    with live(parts) as running, httpx.Client(base_url=running.url, timeout=30) as client:
        yield client
    parts.close()


def test_while_the_pool_is_away_nothing_is_said_of_its_records(
    away: httpx.Client, pool: RemotePool, clock: ManualClock
) -> None:
    register(away)
    key = keys_of(away, tokens(BLOCK))[0]
    path = f"/v1/namespaces/ns/records/snapshot/{key}"
    body = bytes(SNAPSHOT_BYTES)
    assert away.put(path, params={"end_tokens": BLOCK}, content=body, headers=OCTETS).status_code == 201
    pool.is_away = True
    named = {"class": "snapshot", "keys": [key]}
    answers = [away.get(path), away.delete(path)]
    answers += [away.post(f"/v1/namespaces/ns/{verb}", json=named) for verb in ("touch", "delete")]
    for answer in answers:
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
        assert (answer.json()["reason"], answer.headers["retry-after"]) == ("tier_down", "1")
    assert away.head(path).status_code == 503
    pool.is_away = False
    clock.advance(60)
    assert away.get(path).content == body


LONG_BYTES = BLOCK * 8192 * 3 + BLOCK
"""A payload that is sent in several pieces."""


@pytest.mark.parametrize(
    ("asked", "start", "stop", "pieces"),
    [(None, 0, LONG_BYTES, 4), ("bytes=5-1048580", 5, 1048581, 1), ("bytes=5-1048581", 5, 1048582, 2)],
)
def test_a_long_payload_is_sent_in_pieces(
    face: Live, http: httpx.Client, asked: str | None, start: int, stop: int, pieces: int
) -> None:
    register(http, bytes_per_token=LONG_BYTES // BLOCK)
    path = f"/v1/namespaces/ns/records/block/{keys_of(http, tokens(BLOCK))[0]}"
    payload = bytes(range(256)) * (LONG_BYTES // 256) + bytes(LONG_BYTES % 256)
    assert http.put(path, params={"end_tokens": BLOCK}, content=payload, headers=OCTETS).status_code == 201
    answer = http.get(path, headers={"range": asked} if asked else {})
    assert answer.content == payload[start:stop]
    assert answer.headers["content-length"] == str(stop - start)
    sent = asyncio.run(_bodies_of(face, path, asked))
    assert len(sent) == pieces
    assert sum(sent) == stop - start
    assert max(sent) <= 1 << 20


async def _bodies_of(face: Live, path: str, asked: str | None) -> list[int]:
    """How long the pieces are that the face hands to its server."""
    sent: list[int] = []
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"range", asked.encode())] if asked else [],
    }
    app = create_app(face.parts)

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message.get("body"):
            sent.append(len(message["body"]))

    try:
        await app(scope, receive, send)
    finally:
        app.state.context.close()
    return sent
