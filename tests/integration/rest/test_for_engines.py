"""What docs/rest.md and docs/wire-format.md promise an engine's author, over real HTTP."""

import httpx
import pytest
import xxhash

from kvshelf_client.frames import FrameKind
from kvshelf_client.words import MissReason
from service.shelf.upkeep import upkeep_step
from storage.clock import ManualClock
from tests.support.engine import (
    BLOCK,
    BLOCK_BYTES,
    SNAPSHOT_BYTES,
    blocks,
    fetch,
    frame,
    keys_of,
    metric,
    payload_of,
    plan,
    register,
    release,
    serve_cold,
    split,
    store,
    tokens,
)
from tests.support.live import Live


def test_without_a_shard_snapshots_come_first_and_then_blocks_shard_by_shard(http: httpx.Client) -> None:
    register(http, shards=2)
    prompt = tokens(300)
    keys = keys_of(http, prompt)
    frames = b""
    for shard in (1, 0):
        for number, key in enumerate(keys):
            payload = payload_of(key, BLOCK_BYTES // 2, shard)
            frames += frame(key, (number + 1) * BLOCK, shard=shard, payload=payload)
        state = payload_of(keys[-1], SNAPSHOT_BYTES // 2, shard)
        frames += frame(keys[-1], 256, kind=FrameKind.SNAPSHOT, shard=shard, payload=state)
    store(http, frames)
    planned = plan(http, tokens(500))
    order = [(header.kind, header.shard, header.end_tokens) for header, _ in fetch(http, planned)]
    after = [(FrameKind.BLOCK, shard, end) for shard in (0, 1) for end in (128, 256)]
    assert order == [(FrameKind.SNAPSHOT, 0, 256), (FrameKind.SNAPSHOT, 1, 256), *after]
    order = [(header.kind, header.shard, header.end_tokens) for header, _ in fetch(http, planned, fallback=True)]
    assert order == [(FrameKind.FALLBACK, 0, 0), *after]


def test_the_fallback_frame_carries_the_plan_object(http: httpx.Client, face: Live) -> None:
    register(http)
    serve_cold(http, tokens(1000))
    planned = plan(http, tokens(1100))
    answer = http.get(f"/v1/leases/{planned['lease']['lease_id']}/fetch")
    assert "kvshelf-fallback" not in answer.headers
    answer = http.get(f"/v1/leases/{planned['lease']['lease_id']}/fetch?fallback=true")
    assert answer.headers["kvshelf-fallback"] == "true"
    header, payload = split(answer.content)[0]
    assert (header.key, header.shard, header.end_tokens, header.provenance) == (bytes(32), 0, 0, None)
    assert httpx.Response(200, content=payload).json() == planned["fallback"]
    assert planned["fallback"].keys() == planned["plan"].keys()


def test_a_second_plan_under_a_request_id_ends_the_first_lease_at_once(http: httpx.Client) -> None:
    register(http)
    serve_cold(http, tokens(1000))
    counted = metric(http, "kvshelf_requests_total")
    first, second = plan(http, tokens(1100), request_id="r"), plan(http, tokens(900), request_id="r")
    assert http.get(f"/v1/leases/{first['lease']['lease_id']}/fetch").status_code == 404
    assert http.delete(f"/v1/leases/{first['lease']['lease_id']}").status_code == 404
    assert metric(http, "kvshelf_requests_total") == counted
    release(http, second)
    release(http, plan(http, tokens(1100), request_id="r"))
    assert metric(http, "kvshelf_requests_total") == counted + 1


def test_the_plan_is_known_when_its_lease_is_gone(http: httpx.Client, face: Live, clock: ManualClock) -> None:
    register(http)
    serve_cold(http, tokens(1000))
    planned = plan(http, tokens(1100))
    clock.advance(61)
    upkeep_step(face.parts)
    assert http.get(f"/v1/leases/{planned['lease']['lease_id']}/fetch").status_code == 404
    keys = keys_of(http, tokens(1100))
    answer = store(http, blocks(keys, 7), plan_id=planned["plan"]["plan_id"])
    assert (answer["plan_known"], answer["outcomes"][0]["provenance"]) == (True, "exact")


def test_after_a_miss_the_good_blocks_are_held_and_the_bad_one_is_not_asked_for(http: httpx.Client) -> None:
    register(http)
    keys = serve_cold(http, tokens(1000))
    http.delete(f"/v1/namespaces/ns/records/block/{keys[3]}").raise_for_status()
    again = plan(http, tokens(1100), hbm_tokens=3 * BLOCK, hbm_exact_tokens=3 * BLOCK)
    assert (again["plan"]["matched_tokens"], again["plan"]["load"]["global"]) == (3 * BLOCK, [3 * BLOCK] * 2)
    assert again["plan"]["held_tokens"] == 3 * BLOCK


@pytest.mark.parametrize("is_planned_anew", [True, False])
def test_a_run_that_was_cold_against_its_plan(http: httpx.Client, clock: ManualClock, is_planned_anew: bool) -> None:
    register(http)
    keys = serve_cold(http, tokens(1000))
    clock.advance(301)
    planned = plan(http, tokens(1000), request_id="r")
    assert planned["plan"]["mode"] == "bounded_replay"
    http.post("/v1/namespaces/ns/delete", json={"class": "block", "keys": keys}).raise_for_status()
    refused = store(http, blocks(keys), plan_id=planned["plan"]["plan_id"])
    assert [outcome["reason"] for outcome in refused["outcomes"]] == ["below_write_floor"] * 6 + ["none"]
    if is_planned_anew:
        planned = plan(http, tokens(1000), request_id="r", supports="")
        assert planned["plan"]["mode"] == "cold"
    plan_id = {"plan_id": planned["plan"]["plan_id"]} if is_planned_anew else {}
    kept = store(http, blocks(keys[:6]), **plan_id)
    assert {outcome["provenance"] for outcome in kept["outcomes"]} == {"exact" if is_planned_anew else "replayed"}
    assert release(http, planned, "plan" if is_planned_anew else "cold")["prefill"] == 1000


def test_the_headers_of_a_record(http: httpx.Client) -> None:
    register(http)
    keys = keys_of(http, tokens(200))
    path = f"/v1/namespaces/ns/records/block/{keys[0]}"
    assert http.get(path).headers["kvshelf-miss"] == MissReason.NEVER_STORED.value
    store(http, blocks(keys))
    for answer in (http.get(path), http.head(path), http.get(path, headers={"range": "bytes=0-3"})):
        assert answer.headers["kvshelf-provenance"] == "replayed"
        whole = xxhash.xxh3_64_hexdigest(payload_of(keys[0], BLOCK_BYTES))
        assert len(whole) == 16
        assert answer.headers["kvshelf-checksum"] == f"xxh3={whole}"
