"""What is done over every face. Each scenario gives back all it has seen, and holds itself to what must be seen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from kvshelf_client import NamespaceSpec, RecordClass
from kvshelf_client.answers import Namespace
from kvshelf_client.hashing import block_keys
from kvshelf_client.plans import Plan
from service.access import ANYBODY
from service.shelf.upkeep import upkeep_step
from tests.contract.faces.callers import Caller
from tests.contract.faces.observed import plain, refused, with_ids_in_order
from tests.contract.faces.stage import SHELF, Stage
from tests.support.client import fetched
from tests.support.damage import damage, damage_on_disk
from tests.support.engine import BLOCK, PROFILE, payload_of, tokens

BLOCK_, SNAPSHOT = RecordClass.BLOCK, RecordClass.SNAPSHOT
OWN_PROFILE: dict[str, object] = {
    "id": "mine/bf16",
    "replay": "none",
    "global_rows": [{"layers": 2, "row": [{"name": "key", "dtype": "bf16", "shape": [2, 4]}]}],
}


def register(stage: Stage) -> Any:
    """A namespace is made once, and something else of its name is a conflict that says in what."""
    made = stage.namespace()
    spec = NamespaceSpec("a", made.name, "1", PROFILE, BLOCK, 1)
    again = stage.caller.register(made.name, spec)
    conflict = refused(lambda: stage.caller.register(made.name, replace(spec, weights_revision="2", shards=2)))
    wrong = [
        refused(lambda: stage.caller.register("x", replace(spec, profile="none"))),
        refused(lambda: stage.caller.register("x", replace(spec, profile={"id": "mine"}))),
        refused(lambda: stage.caller.register("x", replace(spec, block_tokens=0))),
    ]
    assert (made.created, again.created if again else None) == (True, False)
    assert conflict["status"] == 409
    assert {one["field"] for one in conflict["differences"]} == {"weights_revision", "shards"}
    assert {one["status"] for one in wrong} == {422}
    return [plain(made), plain(again), conflict, wrong]


def own_profile(stage: Stage) -> Any:
    """A profile written out: numbers, lists, nesting."""
    made = stage.caller.register("own", NamespaceSpec("a", "own", "1", OWN_PROFILE, BLOCK))
    damaged = replace(NamespaceSpec("a", "own", "1", OWN_PROFILE, BLOCK), profile=OWN_PROFILE | {"replay": "sometimes"})
    assert made is not None
    assert made.block_bytes > 0
    return [plain(made), refused(lambda: stage.caller.register("other", damaged))]


def hashing(stage: Stage) -> Any:
    """Both sides make the same keys; the self-test takes so many tokens and no more."""
    namespace = stage.namespace(block_tokens=2, profile=OWN_PROFILE, bytes_per_token=None)
    hashed = stage.caller.hash_tokens(namespace, tokens(4))
    assert hashed is not None
    assert hashed.keys == block_keys(namespace.fingerprint, tokens(4), 2)
    return [plain(hashed), refused(lambda: stage.caller.hash_tokens(namespace, tokens(5)))]


def all_modes(stage: Stage) -> Any:
    """Each way to resume, from what is there and what the engine holds and can do."""
    namespace = stage.namespace()
    seen = [stage.plan(namespace, 1000)]
    stage.serve_cold(namespace, 1000)
    seen += [
        stage.plan(namespace, 1100),
        stage.plan(namespace, 1100, supports=["bounded_replay"]),
        stage.plan(namespace, 3500, supports=["exact_rebuild"], allow_approximate=False),
        stage.plan(namespace, 1100, supports=[]),
        stage.plan(namespace, 1100, hbm_tokens=950, hbm_exact_tokens=950, hbm_state=True),
        stage.plan(namespace, 1100, hbm_tokens=300),
        stage.plan(namespace, 1100, max_load_bytes_per_saved_token=0.0),
        stage.plan(namespace, 1100, lease_ttl_seconds=7.5, extra=b"adapter"),
    ]
    full = stage.namespace(profile="llama-3-8b/bf16")
    stage.serve_cold(full, 1000)
    seen.append(stage.plan(full, 1100))
    keys = b"".join(seen[1].keys)
    seen.append(stage.caller.plan(namespace, hashes=keys, prompt_tokens=1100, request_id="by hashes"))
    stage.clock.advance(301)
    seen.append(stage.plan(namespace, 1100))
    assert [plan.resume.mode for plan in seen] == [
        "cold", "snapshot", "bounded_replay", "cold", "cold", "resident", "snapshot", "cold", "cold",
        "full_attention", "snapshot", "bounded_replay",
    ]  # fmt: skip
    return [_described(plan) for plan in seen]


def bad_plans(stage: Stage) -> Any:
    """What cannot be asked, and where the fault is."""
    namespace = stage.namespace()
    unknown = namespace._replace(name="unknown")
    return [
        refused(lambda: stage.plan(unknown, 100)),
        refused(lambda: stage.plan(namespace, 100, hbm_tokens=101)),
        refused(lambda: stage.plan(namespace, 100, hbm_tokens=-1)),
        refused(lambda: stage.plan(namespace, 100, hbm_tokens=5, hbm_exact_tokens=6)),
        refused(lambda: stage.plan(namespace, 100, supports=["magic"])),
        refused(lambda: stage.plan(namespace, 100, lease_ttl_seconds=1e9)),
        refused(lambda: stage.plan(namespace, 100, request_id="x" * 129)),
        refused(lambda: stage.plan(namespace, 4001)),
        refused(lambda: stage.plan(namespace, 0)),
        refused(lambda: stage.caller.plan(namespace, hashes=bytes(64), prompt_tokens=100, request_id="r")),
    ]


def fetch(stage: Stage) -> Any:
    """The bytes that were stored, of all shards or of one, in the caller's own buffers."""
    namespace = stage.namespace(shards=2)
    stage.serve_cold(namespace, 1000)
    plan = stage.plan(namespace, 1100)
    everything = fetched(stage.caller, plan)
    of_one = fetched(stage.caller, plan, shard=1)
    for loaded, payloads in (everything, of_one):
        assert loaded.fault is None
        for slot, payload in payloads.items():
            key = plan.keys[slot.end_tokens // BLOCK - 1].hex()
            assert payload == payload_of(key, namespace.bytes_of(slot.record_class), slot.shard)
    assert (len(everything[1]), len(of_one[1])) == (16, 8)
    cold = fetched(stage.caller, stage.plan(stage.namespace(), 1000))
    return [plain(everything[0]), plain(of_one[0]), plain(cold[0])]


def lost_snapshot(stage: Stage) -> Any:
    """A snapshot that is gone, or bad, brings the fallback, and the store that names the plan can claim no more."""
    namespace = stage.namespace()
    earlier = stage.serve_cold(namespace, 1000)
    plan = stage.plan(namespace, 1100)
    _damage(stage, namespace, SNAPSHOT, earlier.keys[6])
    loaded, payloads = fetched(stage.caller, plan)
    assert loaded.resume.mode == "bounded_replay"
    assert len(payloads) == 7
    stored = stage.caller.store(namespace, stage.records(plan, range(7, 8), 1024), ran=loaded.resume)
    assert {outcome.provenance for outcome in stored.outcomes} == {"replayed"}
    before = _counted(stage)
    assert stage.caller.release(plan, loaded.resume)
    later = stage.plan(namespace, 1200)
    assert (later.hit_tokens, later.exact_hit_tokens) == (1024, 896)
    return [plain(loaded), plain(stored), before, _counted(stage), _described(later)]


def corrupt_block(stage: Stage) -> Any:
    """A block that turned bad ends the load there, is never handed out, and is said to be corrupt."""
    namespace = stage.namespace()
    earlier = stage.serve_cold(namespace, 1000)
    plan = stage.plan(namespace, 1100, supports=["bounded_replay"])
    _damage(stage, namespace, BLOCK_, earlier.keys[3])
    loaded, payloads = fetched(stage.caller, plan)
    assert loaded.verified_tokens == 3 * BLOCK
    assert len(payloads) == 3
    after = stage.plan(namespace, 1100, request_id="after")
    assert after.missing_global is not None
    assert after.missing_global.reason.value == "corrupt"
    return [plain(loaded), _described(after)]


def stores(stage: Stage) -> Any:
    """Each outcome a record may have."""
    namespace = stage.namespace()
    plan = stage.plan(namespace, 1000)
    whole = stage.records(plan, range(7), 896)
    first = stage.caller.store(namespace, whole[:3], durable=False)
    better = stage.caller.store(namespace, whole, ran=plan.resume)
    wrong = [
        whole[0]._replace(payload=bytes(3)),
        whole[0]._replace(shard=5),
        whole[0]._replace(end_tokens=100),
        whole[7],
    ]
    refusals = stage.caller.store(namespace, wrong, ran=plan.resume)
    later = stage.plan(namespace, 1300)
    below = stage.caller.store(namespace, stage.records(later, range(3, 9)), ran=later.resume)
    nobody = stage.caller.store(namespace, whole[:1], ran=plan.resume._replace(plan_id="nobody"))
    nothing = stage.caller.store(namespace, [])
    too_many = refused(lambda: stage.caller.store(namespace, whole[:1] * 41))
    assert first.counts == {"stored": 3}
    assert better.counts == {"replaced": 3, "stored": 5}
    assert [outcome.reason for outcome in refusals.outcomes] == ["wrong_size", "wrong_shard", "no_boundary", "none"]
    assert [outcome.reason for outcome in below.outcomes][:4] == ["below_write_floor"] * 4
    assert (too_many["status"], nobody.plan_known) == (413, False)
    too_many["outcomes"] = len(too_many["outcomes"]) >= 32
    return [*map(plain, (first, better, refusals, below, nobody, nothing)), too_many]


def supersede(stage: Stage) -> Any:
    """A snapshot retires the one it supersedes when it is first used."""
    namespace = stage.namespace()
    earlier = stage.serve_cold(namespace, 1000)
    plan = stage.plan(namespace, 1200)
    records = stage.records(plan, range(7, 9), 1152)
    stored = stage.caller.store(namespace, records, ran=plan.resume, supersedes=earlier.keys[6])
    before = stage.caller.touch(namespace, SNAPSHOT, [earlier.keys[6]])
    loaded, _ = fetched(stage.caller, stage.plan(namespace, 1300))
    after = stage.caller.touch(namespace, SNAPSHOT, [earlier.keys[6]])
    assert (before, after) == (1, 0)
    return [plain(stored), plain(loaded)]


def touch_and_delete(stage: Stage) -> Any:
    """Records by key."""
    namespace = stage.namespace()
    plan = stage.serve_cold(namespace, 1000)
    counts = [
        stage.caller.touch(namespace, BLOCK_, plan.keys[:3]),
        stage.caller.touch(namespace, BLOCK_, [bytes(32)]),
        stage.caller.delete(namespace, BLOCK_, plan.keys[2:5]),
        stage.caller.delete(namespace, BLOCK_, plan.keys[2:5]),
        stage.caller.delete(namespace, SNAPSHOT, plan.keys[6:7]),
        stage.caller.touch(namespace, BLOCK_, []),
    ]
    assert counts == [3, 0, 3, 0, 1, 0]
    return [
        counts,
        _described(stage.plan(namespace, 1000)),
        refused(lambda: stage.caller.touch(namespace, BLOCK_, [bytes(32)] * 5)),
        refused(lambda: stage.caller.delete(namespace._replace(name="unknown"), BLOCK_, [bytes(32)])),
    ]


def accounting(stage: Stage) -> Any:
    """Tokens are counted once a request, by what ran."""
    namespace = stage.namespace()
    stage.serve_cold(namespace, 1000)
    before = _counted(stage)
    plan = stage.plan(namespace, 1100, request_id="counted")
    assert stage.caller.release(plan, plan.resume)
    twice = refused(lambda: stage.caller.release(plan, plan.resume))
    again = stage.plan(namespace, 1100, request_id="counted")
    assert stage.caller.release(again, again.resume)
    other = stage.plan(namespace, 1100)
    assert other.fallback is not None
    assert stage.caller.release(other, other.fallback)
    cold = stage.plan(namespace, 1100)
    assert stage.caller.release(cold, cold.resume._replace(plan_id=None))
    after = _counted(stage)
    assert after["kvshelf_requests_total"] - before["kvshelf_requests_total"] == 3
    return [twice, before, after]


def leases(stage: Stage) -> Any:
    """A lease lives on when it is renewed, ends by itself, and is unknown from then on."""
    namespace = stage.namespace()
    stage.serve_cold(namespace, 1000)
    plan = stage.plan(namespace, 1100)
    stage.clock.advance(50)
    assert stage.caller.renew(plan)
    stage.clock.advance(50)
    upkeep_step(stage.face.parts)
    assert stage.caller.renew(plan)
    stage.clock.advance(61)
    upkeep_step(stage.face.parts)
    before = _counted(stage)
    gone = [
        refused(lambda: stage.caller.renew(plan)),
        refused(lambda: fetched(stage.caller, plan)),
        refused(lambda: stage.caller.release(plan, plan.resume)),
    ]
    assert {one["status"] for one in gone} == {404}
    return [gone, before]


def spared(stage: Stage) -> Any:
    """A client that is not strict answers that there is nothing."""
    caller = stage.open(strict=False)
    namespace = stage.namespace()
    unknown = namespace._replace(name="unknown")
    plan = caller.plan(unknown, tokens=tokens(300), request_id="spared")
    stored = caller.store(unknown, stage.records(plan, range(2)))
    return [
        plain(plan.fault),
        _described(plan),
        plain(caller.fetch_into(plan, {})),
        plain(stored),
        caller.touch(unknown, BLOCK_, [bytes(32)]),
        caller.release(plan, plan.resume),
        caller.counters(),
    ]


def stopping(stage: Stage) -> Any:
    """During a stop nothing new is taken; what was leased is served, and health is told."""
    namespace = stage.namespace()
    stage.serve_cold(namespace, 1000)
    plan = stage.plan(namespace, 1100)
    hasty = stage.open(budget_seconds=0.5)  # It has no time to ask once more.
    with _draining(stage):
        seen = [
            refused(lambda: hasty.plan(namespace, tokens=tokens(1100), request_id="hasty")),
            refused(lambda: hasty.store(namespace, stage.records(plan, range(1)))),
            refused(lambda: hasty.touch(namespace, BLOCK_, plan.keys[:1])),
        ]
        assert {(one["status"], one["retry"]) for one in seen} == {(503, 1.0)}
        loaded, payloads = fetched(stage.caller, plan)
        assert len(payloads) == 8
        assert stage.caller.stats()
        seen += [plain(loaded), plain(stage.caller.health()), stage.caller.release(plan, plan.resume)]
    return seen


def statistics(stage: Stage) -> Any:
    """What the service says of itself."""
    return [plain(stage.caller.stats()), plain(stage.caller.health())]


def denied(stage: Stage) -> Any:
    """Without a token, with one that is not taken, and with one whose scope is another."""
    namespace = stage.namespace()
    plan = stage.plan(namespace, 1000)
    seen = []
    for token in (None, "nobody's", "a-write"):
        caller = stage.open(token=token)
        seen.append(refused(lambda: caller.plan(namespace, tokens=tokens(300), request_id="r")))  # noqa: B023
        seen.append(refused(lambda: fetched(caller, _with_something(plan))))  # noqa: B023
        seen.append(plain(caller.health()))
    reader = stage.open(token="a-read")
    seen.append(refused(lambda: reader.store(namespace, stage.records(plan, range(1)))))
    seen.append(refused(lambda: reader.delete(namespace, BLOCK_, plan.keys[:1])))
    assert [one["status"] for one in seen] == [401, 401, "ok", 401, 401, "ok", 403, 403, "ok", 403, 403]
    return seen


def foreign_tenant(stage: Stage) -> Any:
    """What is another tenant's does not exist, and is not counted or touched."""
    namespace = stage.namespace()
    stage.serve_cold(namespace, 1000)
    plan = stage.plan(namespace, 1100)
    other = stage.open(token="b")
    assert plan.lease is not None
    seen, absent = (
        _refused_to(other, of, of_lease, stage)
        for of, of_lease in (
            (namespace, plan),
            (namespace._replace(name="absent"), replace(plan, lease=plan.lease._replace(lease_id="id-999999"))),
        )
    )
    assert {one["status"] for one in seen} == {404}
    assert _nameless(seen, namespace.name) == _nameless(absent, "absent"), "what is foreign looks as what is absent"
    assert len(fetched(stage.caller, plan)[1]) == 8
    return [seen, plain(other.stats())]


def _refused_to(other: Caller, namespace: Namespace, plan: Plan, stage: Stage) -> list[Any]:
    """How all that may not be done with a namespace and a lease is refused."""
    return [
        refused(lambda: other.plan(namespace, tokens=tokens(1100), request_id="r")),
        refused(lambda: fetched(other, plan)),
        refused(lambda: other.renew(plan)),
        refused(lambda: other.release(plan, plan.resume)),
        refused(lambda: other.store(namespace, stage.records(plan, range(1)))),
        refused(lambda: other.delete(namespace, BLOCK_, plan.keys[:1])),
    ]


def _nameless(seen: list[Any], name: str) -> Any:
    """The same without the name that was asked for, and the requests' own ids."""
    return [
        {field: str(value).replace(name, "") for field, value in one.items() if field != "request_id"}
        for one in with_ids_in_order(seen)
    ]


EVERYWHERE: tuple[Callable[[Stage], Any], ...] = (
    register, own_profile, hashing, all_modes, bad_plans, fetch, lost_snapshot, corrupt_block, stores, supersede,
    touch_and_delete, accounting, leases, spared, stopping, statistics,
)  # fmt: skip
WITH_TOKENS: tuple[Callable[[Stage], Any], ...] = (denied, foreign_tenant)


def _described(plan: Plan) -> Any:
    """All of a plan but what was asked, and what it stands for."""
    described = plain(plan)
    return {name: value for name, value in described.items() if name not in ("ask", "namespace")}


def _with_something(plan: Plan) -> Plan:
    """A plan that has something to fetch."""
    load = plan.resume.load._replace(global_end=BLOCK)
    return replace(plan, resume=plan.resume._replace(load=load))


def _counted(stage: Stage) -> dict[str, float]:
    """Requests and tokens by source, as they are counted now."""
    registry = stage.face.parts.metrics.registry
    counted = {
        f"{source} tokens": registry.get_sample_value("kvshelf_prompt_tokens_total", {"source": source}) or 0.0
        for source in ("hbm", "dram", "ssd", "replay", "prefill")
    }
    return counted | {"kvshelf_requests_total": registry.get_sample_value("kvshelf_requests_total") or 0.0}


def _damage(stage: Stage, namespace: Namespace, kind: RecordClass, key: bytes) -> None:
    parts = stage.face.parts
    record_id = parts.namespaces.get(ANYBODY, namespace.name).record_id(key)
    if kind is BLOCK_:
        damage_on_disk(stage.directory / SHELF, record_id, namespace.block_bytes)
    else:
        damage(parts.snapshots, record_id)


@contextmanager
def _draining(stage: Stage) -> Iterator[None]:
    stage.face.context.is_draining = True
    try:
        yield
    finally:
        stage.face.context.is_draining = False
