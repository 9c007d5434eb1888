"""Bad input over HTTP: a clear 4xx as a problem document that names the field, and nothing lost or leaked."""

import httpx
import pytest

from kvshelf_client.frames import MEDIA_TYPE, FrameKind
from tests.support.engine import (
    BLOCK,
    blocks,
    frame,
    keys_of,
    metric,
    plan,
    register,
    snapshot,
    store,
    tokens,
)
from tests.support.live import Live

OCTETS = {"content-type": "application/octet-stream"}
HASHES = {"content-type": "application/vnd.kvshelf.hashes.v1"}


def problem(answer: httpx.Response, status: int) -> str:
    """The detail of the problem document, of the expected status."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == status
    assert document["title"]
    detail: str = document["detail"]
    assert detail
    return detail


@pytest.mark.parametrize(
    ("query", "body", "field"),
    [
        ({}, b"", "prompt_tokens"),
        ({}, b"abc", "tokens"),
        ({}, b"abcde", "tokens"),
        ({"hbm_tokens": -1}, tokens(10), "hbm_tokens"),
        ({"hbm_tokens": 11}, tokens(10), "hbm_tokens"),
        ({"hbm_tokens": 5, "hbm_exact_tokens": 6}, tokens(10), "hbm_exact_tokens"),
        ({"hbm_exact_tokens": 640}, tokens(1000), "hbm_exact_tokens"),
        ({"hbm_tokens": "many"}, tokens(10), "hbm_tokens"),
        ({"supports": "flying"}, tokens(10), "supports"),
        ({"lease_ttl_seconds": 0}, tokens(10), "lease_ttl_seconds"),
        ({"lease_ttl_seconds": 601}, tokens(10), "lease_ttl_seconds"),
        ({"lease_ttl_seconds": "nan"}, tokens(10), "lease_ttl_seconds"),
        ({"max_load_bytes_per_saved_token": -1}, tokens(10), "max_load_bytes_per_saved_token"),
        ({"extra": "xyz"}, tokens(10), "extra"),
        ({"request_id": "x" * 129}, tokens(10), "request_id"),
        ({"request_id": ""}, tokens(10), "request_id"),
        ({"prompt_tokens": 9}, tokens(10), "prompt_tokens"),
        ({"allow_aproximate": "false"}, tokens(10), "allow_approximate"),
        ({"hbm_tokens": [5, 6]}, tokens(10), "hbm_tokens"),
        ({"nonsense": "x" * 5000}, tokens(10), "nonsense"),
        ({"hbm_tokens": "9" * 5000}, tokens(10), "hbm_tokens"),
    ],
)
def test_a_nonsense_plan_names_its_field(
    http: httpx.Client, face: Live, query: dict[str, object], body: bytes, field: str
) -> None:
    register(http)
    answer = http.post("/v1/namespaces/ns/plan", params=query, content=body, headers=OCTETS)  # type: ignore[arg-type]
    assert field in problem(answer, 422)
    assert len(face.parts.leases) == 0


def test_the_wrong_field_is_in_the_list_of_errors(http: httpx.Client) -> None:
    register(http)
    for query, body, field in (
        ({"hbm_tokens": 11}, tokens(10), "query.hbm_tokens"),
        ({"hbm_tokens": "x"}, tokens(10), "query.hbm_tokens"),
        ({"hbm_token": 1}, tokens(10), "query.hbm_token"),
        ({}, b"abc", "body"),
    ):
        answer = http.post("/v1/namespaces/ns/plan", params=query, content=body, headers=OCTETS)
        assert [error["field"] for error in answer.json()["errors"]] == [field]
        assert len(answer.content) < 2000


def test_extra_goes_only_with_tokens(http: httpx.Client) -> None:
    register(http)
    plain, other = (keys_of(http, tokens(300), extra=extra) for extra in ("", "ab"))
    assert set(plain).isdisjoint(other)
    store(http, blocks(plain))
    assert plan(http, tokens(300))["hit_tokens"] == 256
    assert plan(http, tokens(300), extra="ab")["hit_tokens"] == 0
    path, raw = "/v1/namespaces/ns/plan", b"".join(map(bytes.fromhex, plain))
    answer = http.post(path, params={"prompt_tokens": 300, "extra": "ab"}, content=raw, headers=HASHES)
    assert "extra" in problem(answer, 422)


def test_parameters_of_other_routes_are_taken_by_name_or_refused(http: httpx.Client) -> None:
    register(http)
    lease = plan(http, tokens(10))["lease"]["lease_id"]
    assert "ran" in problem(http.delete(f"/v1/leases/{lease}", params={"run": "cold"}), 422)
    assert "shard" in problem(http.get(f"/v1/leases/{lease}/fetch", params={"shards": 0}), 422)
    assert http.delete(f"/v1/leases/{lease}", params={"ran": "cold"}).status_code == 200


def test_encoded_bodies_are_not_taken(http: httpx.Client) -> None:
    register(http)
    answer = http.post("/v1/namespaces/ns/plan", content=tokens(10), headers=OCTETS | {"content-encoding": "gzip"})
    assert "gzip" in problem(answer, 415)


def test_hashes_must_fit_the_prompt(http: httpx.Client) -> None:
    register(http)
    path = "/v1/namespaces/ns/plan"
    assert "prompt_tokens" in problem(http.post(path, content=bytes(32), headers=HASHES), 422)
    for stated in (0, -1, 127, 256, 2**40):
        answer = http.post(path, params={"prompt_tokens": stated}, content=bytes(32), headers=HASHES)
        problem(answer, 422)
    ragged = http.post(path, params={"prompt_tokens": 128}, content=bytes(33), headers=HASHES)
    assert "32 bytes" in problem(ragged, 422)
    both = http.post(path, json={"tokens": [1], "hashes": [], "prompt_tokens": 1})
    assert "tokens" in problem(both, 422)
    assert "tokens" in problem(http.post(path, json={"tokens": [2**32]}), 422)
    assert "hashes" in problem(http.post(path, json={"prompt_tokens": 128, "hashes": ["zz"]}), 422)


def test_an_engines_scheme_takes_no_tokens(http: httpx.Client) -> None:
    register(http, hash_scheme="vllm", hash_block_tokens=16)
    answer = http.post("/v1/namespaces/ns/plan", content=tokens(200), headers=OCTETS)
    assert "vllm" in problem(answer, 422)
    sub_blocks = b"".join(bytes([number]) * 32 for number in range(12))
    taken = http.post("/v1/namespaces/ns/plan", params={"prompt_tokens": 200}, content=sub_blocks, headers=HASHES)
    assert taken.status_code == 200, taken.text


def test_what_is_not_there_is_a_404(http: httpx.Client) -> None:
    assert "register" in problem(http.get("/v1/namespaces/none"), 404)
    problem(http.post("/v1/namespaces/none/plan", content=tokens(1), headers=OCTETS), 404)
    problem(http.post("/v1/namespaces/none/store", content=b"", headers={"content-type": MEDIA_TYPE}), 404)
    assert "plan again" in problem(http.get("/v1/leases/none/fetch"), 404).replace("ask for a plan again", "plan again")
    problem(http.get("/nowhere"), 404)
    assert http.get("/v1/namespaces/none/plan").headers["allow"] == "POST"
    assert http.post("/v1/namespaces/none").headers["allow"] == "GET, PUT"
    for method in ("HEAD", "POST"):
        answer = http.request(method, "/v1/leases/none/fetch")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    record = f"/v1/namespaces/none/records/block/{'ab' * 32}"
    assert http.post(record).headers["allow"] == "DELETE, GET, HEAD, PUT"
    assert "openapi.json" in problem(http.get("/v1/namespaces/"), 404)
    problem(http.get("/v1/namespaces/none/plan"), 405)


def test_a_body_of_another_kind_is_a_415(http: httpx.Client) -> None:
    register(http)
    for path in ("plan", "store", "hash", "touch", "delete"):
        problem(http.post(f"/v1/namespaces/ns/{path}", content=b"x", headers={"content-type": "text/plain"}), 415)


def test_each_record_is_judged_by_itself(http: httpx.Client) -> None:
    register(http)
    keys = keys_of(http, tokens(700))
    sent = [
        frame(keys[0], BLOCK),
        frame(keys[1], 2 * BLOCK, payload=b"short"),
        frame(keys[1], 2 * BLOCK, payload=bytes(2561)),
        frame(keys[2], 3 * BLOCK, shard=1),
        frame(keys[3], 4 * BLOCK + 1),
        frame(keys[3], 0),
        frame(keys[4], 5 * BLOCK),
    ]
    answer = store(http, b"".join(sent))
    assert [(outcome["outcome"], outcome["reason"]) for outcome in answer["outcomes"]] == [
        ("stored", "none"),
        ("refused", "wrong_size"),
        ("refused", "wrong_size"),
        ("refused", "wrong_shard"),
        ("refused", "no_boundary"),
        ("refused", "no_boundary"),
        ("stored", "none"),
    ]
    assert answer["counts"] == {"stored": 2, "refused": 5}
    assert metric(http, 'kvshelf_stored_records_total{class="block",outcome="refused",reason="wrong_size"}') == 2


def test_a_payload_that_is_not_its_checksums_is_refused(http: httpx.Client) -> None:
    register(http)
    keys = keys_of(http, tokens(200))
    damaged = bytearray(frame(keys[0], BLOCK))
    damaged[-1] ^= 1
    (outcome,) = store(http, bytes(damaged))["outcomes"]
    assert (outcome["outcome"], outcome["reason"]) == ("refused", "corrupt")
    assert plan(http, tokens(200))["hit_tokens"] == 0


def test_records_below_the_write_floor_are_refused(http: httpx.Client) -> None:
    register(http)
    keys = keys_of(http, tokens(1000))
    store(http, blocks(keys))
    planned = plan(http, tokens(1000))
    assert planned["plan"]["write_floor"] == 768
    answer = store(http, blocks(keys) + snapshot(keys, 640) + snapshot(keys, 768), plan_id=planned["plan"]["plan_id"])
    reasons = [outcome["reason"] for outcome in answer["outcomes"]]
    assert reasons == ["below_write_floor"] * 6 + ["none", "below_write_floor", "none"]


def test_a_plan_of_another_namespace_supports_no_claim(http: httpx.Client) -> None:
    register(http)
    register(http, "other", salt="other")
    planned = plan(http, tokens(1000), "other")
    answer = store(http, blocks(keys_of(http, tokens(1000))), plan_id=planned["plan"]["plan_id"])
    assert answer["plan_known"] is False
    assert {outcome["provenance"] for outcome in answer["outcomes"]} == {"replayed"}


def test_one_namespace_never_sees_anothers_records(http: httpx.Client) -> None:
    register(http)
    register(http, "other", salt="other")
    keys = keys_of(http, tokens(200))
    store(http, blocks(keys))
    assert http.get(f"/v1/namespaces/ns/records/block/{keys[0]}").status_code == 200
    assert http.get(f"/v1/namespaces/other/records/block/{keys[0]}").status_code == 404


@pytest.mark.parametrize(
    "damage", ["magic", "cut header", "cut payload", "announces too much", "a fallback", "text"], ids=str
)
def test_a_malformed_stream_is_a_400_and_what_came_before_is_kept(http: httpx.Client, damage: str) -> None:
    register(http)
    keys = keys_of(http, tokens(300))
    good, bad = frame(keys[0], BLOCK), bytearray(frame(keys[1], 2 * BLOCK))
    if damage == "magic":
        bad[0] ^= 1
    elif damage == "cut header":
        del bad[50:]
    elif damage == "cut payload":
        del bad[-1:]
    elif damage == "announces too much":
        bad = bytearray(frame(keys[1], 2 * BLOCK, payload=bytes(2561 + (64 << 10))))
    elif damage == "a fallback":
        bad = bytearray(frame(keys[1], 2 * BLOCK, kind=FrameKind.FALLBACK))
    else:
        bad = bytearray(b"hello" * 40)
    answer = http.post("/v1/namespaces/ns/store", content=good + bytes(bad), headers={"content-type": MEDIA_TYPE})
    assert "after 1 records" in problem(answer, 400)
    assert [(outcome["key"], outcome["outcome"]) for outcome in answer.json()["outcomes"]] == [(keys[0], "stored")]
    assert plan(http, tokens(300))["hit_tokens"] == BLOCK
    assert http.get(f"/v1/namespaces/ns/records/block/{keys[0]}").status_code == 200
    assert http.get(f"/v1/namespaces/ns/records/block/{keys[1]}").status_code == 404


def test_bounds_on_lists_and_bodies(http: httpx.Client, face: Live) -> None:
    register(http)
    limit = face.parts.settings.limits.max_list_items
    many = {"class": "block", "keys": ["00" * 32] * (limit + 1)}
    problem(http.post("/v1/namespaces/ns/touch", json=many), 413)
    assert http.post("/v1/namespaces/ns/touch", json=many | {"keys": ["00" * 32]}).json() == {"records": 0}
    too_long = bytes(4 * (limit + 1))
    problem(http.post("/v1/namespaces/ns/hash", content=too_long, headers=OCTETS), 413)
    most = face.parts.settings.limits.max_prompt_tokens
    problem(http.post("/v1/namespaces/ns/plan", content=bytes(4 * most + 4), headers=OCTETS), 413)


def test_nothing_to_store_is_no_error(http: httpx.Client) -> None:
    register(http)
    assert store(http, b"")["outcomes"] == []
