"""Plan, fetch, run, store, release: the whole circle over real HTTP, with everything that may go missing on the way."""

import json

import httpx

from kvshelf_client.frames import FrameKind
from kvshelf_client.words import MissReason, Provenance, RecordClass
from service.access import ANYBODY
from service.shelf.upkeep import upkeep_step
from storage.clock import ManualClock
from tests.support.damage import damage
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
    snapshot,
    store,
    tokens,
)
from tests.support.live import Live


def test_the_first_request_is_cold_and_says_why(http: httpx.Client) -> None:
    register(http)
    planned = plan(http, tokens(1000))
    assert planned["plan"]["mode"] == "cold"
    assert planned["plan"]["tokens_by_source"] == {"hbm": 0, "dram": 0, "ssd": 0, "replay": 0, "prefill": 1000}
    assert planned["hit_tokens"] == 0
    assert planned["reasons"]["global"] == {"tokens": 0, "reason": "never_stored"}
    assert planned["fallback"] is None
    assert fetch(http, planned) == []


def test_a_session_resumes_from_its_snapshot_and_gets_its_bytes(http: httpx.Client) -> None:
    register(http)
    keys = serve_cold(http, tokens(1000))
    planned = plan(http, tokens(1100))
    found = planned["plan"]
    assert (found["mode"], found["exact"], found["run_start"]) == ("snapshot", True, 896)
    assert found["load"] == {"global": [0, 896], "snapshot": 896}
    assert found["load_bytes"] == {"ssd": 7 * BLOCK_BYTES, "dram": SNAPSHOT_BYTES}
    frames = fetch(http, planned)
    assert [header.kind for header, _ in frames] == [FrameKind.SNAPSHOT] + [FrameKind.BLOCK] * 7
    assert [header.end_tokens for header, _ in frames] == [896, *range(BLOCK, 897, BLOCK)]
    assert [payload for _, payload in frames[1:]] == [payload_of(key, BLOCK_BYTES) for key in keys]
    assert frames[0][1] == payload_of(keys[6], SNAPSHOT_BYTES)
    assert {header.provenance for header, _ in frames} == {Provenance.EXACT}
    assert release(http, planned) == {"hbm": 0, "dram": 0, "ssd": 896, "replay": 0, "prefill": 204}


def test_an_expired_snapshot_means_bounded_replay(http: httpx.Client, clock: ManualClock) -> None:
    register(http)
    serve_cold(http, tokens(1000))
    clock.advance(299)
    assert plan(http, tokens(1100))["plan"]["mode"] == "snapshot"
    clock.advance(2)
    planned = plan(http, tokens(1100))
    found = planned["plan"]
    assert (found["mode"], found["exact"]) == ("bounded_replay", False)
    assert (found["run_start"], found["write_floor"], found["replayed_tokens"]) == (768, 896, 128)
    assert planned["reasons"]["snapshot"] == {"boundary_tokens": 896, "reason": "expired"}
    assert planned["fallback"] is None


def test_what_follows_a_replay_is_never_exact(http: httpx.Client, face: Live, clock: ManualClock) -> None:
    register(http)
    serve_cold(http, tokens(1000))
    clock.advance(301)
    planned = plan(http, tokens(1100))
    keys = keys_of(http, tokens(1100))
    answer = store(http, blocks(keys, 7) + snapshot(keys, 1024), plan_id=planned["plan"]["plan_id"])
    assert [outcome["provenance"] for outcome in answer["outcomes"]] == ["replayed", "replayed"]
    assert metric(http, 'kvshelf_lowered_claims_total{class="block"}') == 1
    release(http, planned)
    again = plan(http, tokens(1200))
    assert (again["plan"]["mode"], again["plan"]["exact"], again["plan"]["matched_tokens"]) == ("snapshot", False, 1024)
    strict = plan(http, tokens(1200), allow_approximate=False)
    assert strict["plan"]["mode"] == "cold"
    assert (strict["hit_tokens"], strict["exact_hit_tokens"]) == (1024, 896)


def test_an_exact_run_takes_the_place_of_a_replayed_one(http: httpx.Client, clock: ManualClock) -> None:
    register(http)
    keys = keys_of(http, tokens(1000))
    replayed = store(http, blocks(keys))
    assert {outcome["provenance"] for outcome in replayed["outcomes"]} == {"replayed"}
    cold = plan(http, tokens(1000), allow_approximate=False)
    exact = store(http, blocks(keys), plan_id=cold["plan"]["plan_id"])
    assert exact["counts"] == {"replaced": 7}
    assert store(http, blocks(keys))["counts"] == {"duplicate": 7}
    assert plan(http, tokens(1000))["exact_hit_tokens"] == 896


def test_a_snapshot_lost_after_the_plan_brings_the_fallback(http: httpx.Client, face: Live) -> None:
    register(http)
    keys = serve_cold(http, tokens(1000))
    planned = plan(http, tokens(1100))
    assert planned["fallback"]["mode"] == "bounded_replay"
    namespace = face.parts.namespaces.get(ANYBODY, "ns")
    damage(face.parts.snapshots, namespace.record_id(bytes.fromhex(keys[6])))
    answer = http.get(f"/v1/leases/{planned['lease']['lease_id']}/fetch")
    assert answer.headers["kvshelf-fallback"] == "true"
    frames = fetch(http, planned)
    assert frames[0][0].kind is FrameKind.FALLBACK
    assert [header.end_tokens for header, _ in frames[1:]] == list(range(BLOCK, 897, BLOCK))
    # The primary plan's id stands for the fallback now: its claim of exact is lowered.
    more = keys_of(http, tokens(1100))
    outcome = store(http, blocks(more, 7), plan_id=planned["plan"]["plan_id"])["outcomes"][0]
    assert (outcome["outcome"], outcome["provenance"]) == ("stored", "replayed")
    assert release(http, planned) == {"hbm": 0, "dram": 0, "ssd": 768, "replay": 128, "prefill": 204}


def test_a_client_that_found_the_snapshot_bad_asks_for_the_fallback(http: httpx.Client) -> None:
    register(http)
    keys = serve_cold(http, tokens(1000))
    planned = plan(http, tokens(1100))
    frames = fetch(http, planned, fallback=True)
    assert frames[0][0].kind is FrameKind.FALLBACK
    assert json.loads(frames[0][1])["plan_id"] == planned["fallback"]["plan_id"]
    assert [header.end_tokens for header, _ in frames[1:]] == list(range(BLOCK, 897, BLOCK))
    assert fetch(http, planned)[0][0].kind is FrameKind.FALLBACK, "it stays with the fallback"
    store(http, blocks(keys_of(http, tokens(1100)), len(keys)), plan_id=planned["plan"]["plan_id"])
    assert plan(http, tokens(1100))["exact_hit_tokens"] == 896, "the plan that was void supports no claim"
    assert release(http, planned) == {"hbm": 0, "dram": 0, "ssd": 768, "replay": 128, "prefill": 204}


def test_a_block_lost_while_leased_is_a_marked_frame_of_the_announced_length(http: httpx.Client, face: Live) -> None:
    register(http)
    keys = serve_cold(http, tokens(1000))
    planned = plan(http, tokens(1100))
    namespace = face.parts.namespaces.get(ANYBODY, "ns")
    damage(face.parts.blocks, namespace.record_id(bytes.fromhex(keys[3])))
    frames = fetch(http, planned)
    assert [header.miss for header, _ in frames] == [None] * 4 + [MissReason.CORRUPT] + [None] * 3
    after = plan(http, tokens(1100))
    assert after["hit_tokens"] == 3 * BLOCK
    assert after["reasons"]["global"] == {"tokens": 3 * BLOCK, "reason": "corrupt"}


def test_a_used_snapshot_retires_the_one_it_supersedes(http: httpx.Client, face: Live) -> None:
    register(http)
    keys = serve_cold(http, tokens(1000))
    second = plan(http, tokens(1200))
    fetch(http, second)
    longer = keys_of(http, tokens(1200))
    store(http, blocks(longer, 7) + snapshot(longer, 1152), plan_id=second["plan"]["plan_id"], supersedes=keys[6])
    release(http, second)
    path = f"/v1/namespaces/ns/records/snapshot/{keys[6]}"
    assert http.head(path).status_code == 200, "not before the new one was used"
    third = plan(http, tokens(1300))
    assert third["plan"]["load"]["snapshot"] == 1152
    assert http.head(path).status_code == 200, "a plan alone is no use"
    fetch(http, third)
    assert http.head(path).status_code == 404
    assert metric(http, 'kvshelf_evictions_total{cause="superseded",tier="dram"}') == 1


def test_sources_are_counted_once_a_request_id(http: httpx.Client, face: Live) -> None:
    register(http)
    first = plan(http, tokens(1000), request_id="a")
    second = plan(http, tokens(1000), request_id="a")
    assert http.get(f"/v1/leases/{first['lease']['lease_id']}/fetch").status_code == 404
    release(http, second)
    release(http, plan(http, tokens(1000), request_id="a"))
    release(http, plan(http, tokens(500), request_id="b"))
    assert metric(http, "kvshelf_requests_total") == 2
    assert metric(http, 'kvshelf_prompt_tokens_total{source="prefill"}') == 1500


def test_a_forgotten_lease_ends_by_itself_and_is_counted(http: httpx.Client, face: Live, clock: ManualClock) -> None:
    register(http)
    planned = plan(http, tokens(1000))
    clock.advance(59)
    upkeep_step(face.parts)
    assert metric(http, "kvshelf_requests_total") == 0
    clock.advance(2)
    upkeep_step(face.parts)
    assert metric(http, "kvshelf_requests_total") == 1
    assert metric(http, "kvshelf_leases") == 0
    assert http.delete(f"/v1/leases/{planned['lease']['lease_id']}").status_code == 404


def test_a_touched_lease_lives_on(http: httpx.Client, face: Live, clock: ManualClock) -> None:
    register(http)
    planned = plan(http, tokens(1000))
    clock.advance(50)
    assert http.post(f"/v1/leases/{planned['lease']['lease_id']}/touch").status_code == 200
    clock.advance(50)
    upkeep_step(face.parts)
    release(http, planned)


def test_used_blocks_live_on_even_when_the_engine_held_them(http: httpx.Client, clock: ManualClock) -> None:
    register(http)
    serve_cold(http, tokens(1000))
    clock.advance(71 * 3600)
    release(http, plan(http, tokens(1100), hbm_tokens=896, hbm_exact_tokens=896, hbm_state=True))
    clock.advance(2 * 3600)
    assert plan(http, tokens(1000))["hit_tokens"] == 896
    clock.advance(71 * 3600)
    assert plan(http, tokens(1000))["hit_tokens"] == 0


def test_shards_count_only_together_and_are_fetched_one_by_one(http: httpx.Client) -> None:
    register(http, shards=2)
    keys = keys_of(http, tokens(300))
    half = {shard: bytes([shard + 1]) * (BLOCK_BYTES // 2) for shard in range(2)}
    first = [frame(key, (at + 1) * BLOCK, shard=0, payload=half[0]) for at, key in enumerate(keys)]
    second = [frame(key, (at + 1) * BLOCK, shard=1, payload=half[1]) for at, key in enumerate(keys)]
    store(http, b"".join(first + second[:1]))
    assert plan(http, tokens(600))["hit_tokens"] == BLOCK
    store(http, second[1])
    planned = plan(http, tokens(600))
    assert planned["hit_tokens"] == 2 * BLOCK
    assert [payload for _, payload in fetch(http, planned, shard=1)] == [half[1]] * 2
    assert [header.shard for header, _ in fetch(http, planned)] == [0, 0, 1, 1]
    answer = http.get(f"/v1/leases/{planned['lease']['lease_id']}/fetch", params={"shard": 2})
    assert answer.status_code == 422


def test_raw_hashes_and_json_ask_the_same(http: httpx.Client) -> None:
    register(http)
    keys = serve_cold(http, tokens(1000))
    longer = keys_of(http, tokens(1100))
    raw = http.post(
        "/v1/namespaces/ns/plan",
        params={"prompt_tokens": 1100},
        content=b"".join(map(bytes.fromhex, longer)),
        headers={"content-type": "application/vnd.kvshelf.hashes.v1"},
    ).json()
    as_json = http.post("/v1/namespaces/ns/plan", json={"prompt_tokens": 1100, "hashes": longer}).json()
    listed = http.post("/v1/namespaces/ns/plan", json={"tokens": list(range(1100))}).json()
    for answer in (raw, as_json, listed):
        assert answer["hit_tokens"] == 896
        assert answer["plan"]["load"] == {"global": [0, 896], "snapshot": 896}
    assert longer[:7] == keys


def test_class_names_of_the_wire_and_the_words_agree() -> None:
    assert {kind.name: kind.value for kind in RecordClass}.items() <= {k.name: k.value for k in FrameKind}.items()
