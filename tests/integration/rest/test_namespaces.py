"""Namespaces over HTTP: register, conflict, list, hash self-test."""

import httpx
import pytest

from kvshelf_client.hashing import block_keys, namespace_fingerprint
from tests.support.engine import register, tokens


def test_registering_twice_alike_is_fine_and_otherwise_a_conflict_that_names_the_difference(http: httpx.Client) -> None:
    body = {"model": "m", "weights_revision": "1", "profile": "deepseek-v4.1-flash/fp4", "block_tokens": 128}
    assert http.put("/v1/namespaces/a", json=body).status_code == 201
    again = http.put("/v1/namespaces/a", json=body)
    assert again.status_code == 200
    assert (again.json()["block_bytes"], again.json()["snapshot_bytes"]) == (113_920, 1_351_680)
    other = http.put("/v1/namespaces/a", json=body | {"block_tokens": 256, "shards": 2})
    assert other.status_code == 409
    assert other.headers["content-type"] == "application/problem+json"
    assert other.json()["differences"] == [
        {"field": "block_tokens", "registered": 128, "requested": 256},
        {"field": "shards", "registered": 1, "requested": 2},
    ]
    assert http.get("/v1/namespaces/a").json()["block_tokens"] == 128
    assert [found["name"] for found in http.get("/v1/namespaces").json()["namespaces"]] == ["a"]


def test_the_self_test_hashes_as_the_client_does(http: httpx.Client) -> None:
    fingerprint = bytes.fromhex(register(http)["fingerprint"])
    for length in (0, 1, 127, 128, 129, 1000):
        prompt = tokens(length)
        answer = http.post(
            "/v1/namespaces/ns/hash", content=prompt, headers={"content-type": "application/octet-stream"}
        ).json()
        assert answer["keys"] == [key.hex() for key in block_keys(fingerprint, prompt, 128)]
    as_json = http.post("/v1/namespaces/ns/hash", json={"tokens": list(range(300))}).json()
    assert as_json["keys"] == [key.hex() for key in block_keys(fingerprint, tokens(300), 128)]


def test_the_fingerprint_is_made_of_what_a_registration_answers(http: httpx.Client) -> None:
    """By the formula of docs/wire-format.md; and a plan says whose it is."""
    answer = register(http)
    names = ("tenant", "model", "weights_revision", "layout_id", "layout_digest", "block_tokens", "hash_scheme", "salt")
    fields = {name: answer[name] for name in (*names, "shards")}
    made = namespace_fingerprint(fields | {"hash_block_tokens": answer["hash_block_tokens"] or 0})
    assert made.hex() == answer["fingerprint"]
    plan = http.post(
        "/v1/namespaces/ns/plan", content=tokens(8), headers={"content-type": "application/octet-stream"}
    ).json()
    assert plan["fingerprint"] == answer["fingerprint"]


def test_an_inline_profile_makes_a_namespace(http: httpx.Client) -> None:
    profile = {
        "id": "own/u8",
        "global_rows": [{"layers": 2, "row": [{"dtype": "u8", "shape": [3]}]}],
    }
    answer = http.put("/v1/namespaces/own", json={"model": "m", "weights_revision": "1", "profile": profile})
    assert answer.status_code == 201, answer.text
    assert (answer.json()["layout_id"], answer.json()["block_bytes"]) == ("own/u8", 2 * 3 * 128)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"profile": "no/such"}, "profile"),
        ({"profile": {"id": "x", "nonsense": 1}}, "nonsense"),
        ({"block_tokens": 0}, "block_tokens"),
        ({"block_tokens": 127}, "block_tokens"),
        ({"block_tokens": "128"}, "block_tokens"),
        ({"shards": 0}, "shards"),
        ({"shards": 7}, "shards"),
        ({"hash_block_tokens": 16}, "hash_block_tokens"),
        ({"hash_scheme": "vllm", "hash_block_tokens": 100}, "hash_block_tokens"),
        ({"bytes_per_token": 0}, "bytes_per_token"),
        ({"tenant": "x" * 65}, "tenant"),
        ({"salt": "x" * 257}, "salt"),
        ({"unknown": 1}, "unknown"),
        ({"model": None}, "model"),
    ],
)
def test_nonsense_is_a_422_that_names_the_field(http: httpx.Client, changes: dict[str, object], field: str) -> None:
    body: dict[str, object] = {"model": "m", "weights_revision": "1", "profile": "deepseek-v4.1-flash/fp4"}
    answer = http.put("/v1/namespaces/a", json=body | changes)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert field in answer.json()["detail"]
    assert http.get("/v1/namespaces/a").status_code == 404


def test_a_bad_name_or_body_is_refused(http: httpx.Client) -> None:
    body = {"model": "m", "weights_revision": "1", "profile": "deepseek-v4.1-flash/fp4"}
    assert http.put("/v1/namespaces/sp%20ace", json=body).status_code == 422
    assert http.put("/v1/namespaces/" + "x" * 129, json=body).status_code == 422
    assert http.put("/v1/namespaces/a", content=b"{", headers={"content-type": "application/json"}).status_code == 422
    assert http.put("/v1/namespaces/a", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    big = b'{"model": "' + b"x" * (9 << 20) + b'"}'
    assert http.put("/v1/namespaces/a", content=big, headers={"content-type": "application/json"}).status_code == 413
