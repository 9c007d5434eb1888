"""An answer that fits neither the question nor itself is none, whatever transport it came over."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from kvshelf_client import Client, Fault, NamespaceSpec, Plan, StoreRecord
from kvshelf_client.answers import HashedTokens, Health, Lease, Load, PlanAnswer, StoreOutcome, StoreResult
from kvshelf_client.plausible import check_plan
from kvshelf_client.requests import AskPlan
from kvshelf_client.words import Provenance, RecordClass
from service.planner import fallback_plan, resume_plan
from tests.support.planning import Question, questions
from tests.support.scripted_server import Reply, ScriptedServer, answer
from tests.support.scripted_transport import ScriptedTransport
from tests.support.wire import KEYS, NAMESPACE, TOKENS, plan_for, resume, snapshot_answer
from tests.unit.clients.test_plans import answer_of

GOOD = snapshot_answer()
PLAN = plan_for(GOOD)


def planned(outcome: PlanAnswer, **options: Any) -> Plan:
    return Client(ScriptedTransport(outcome)).plan(NAMESPACE, tokens=TOKENS, **options)


def test_a_plan_that_fits_is_taken() -> None:
    for good in (GOOD, GOOD._replace(resume=resume(), fallback=None), GOOD._replace(fingerprint=bytes(32))):
        assert planned(good).fault is None
    assert planned(GOOD._replace(resume=resume(held=2), fallback=None), hbm_tokens=128).fault is None


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "warp"}, {"mode": "full_attention"}, {"mode": "cold"}, {"mode": "exact_rebuild"}, {"mode": ""},
        {"exact": True}, {"prompt_tokens": 1001}, {"matched_tokens": 5000}, {"matched_tokens": -64},
        {"run_start": -128}, {"run_start": 5000}, {"write_floor": 5000}, {"decoder_run_start": 0},
        {"replayed_tokens": 0}, {"saved_tokens": 256}, {"held_tokens": 64}, {"plan_id": ""}, {"plan_id": "\ud800"},
        {"load": Load(0, 300_000_000, None, 0, 0)}, {"load": Load(0, 256, 256, 2560, 0)},
        {"load": Load(64, 256, None, 1920, 0)}, {"load": Load(0, 256, None, 1, 0)},
        {"load": Load(0, 250, None, 2560, 0)},
        {"tokens_by_source": {}}, {"tokens_by_source": {"ssd": 1001}}, {"tokens_by_source": {"ssd": 1001, "hbm": -1}},
    ],
    ids=str,
)  # fmt: skip
def test_a_plan_whose_numbers_do_not_fit_is_malformed(changes: dict[str, Any]) -> None:
    plan = planned(GOOD._replace(resume=resume()._replace(**changes), fallback=None))
    assert (plan.fault, plan.resume.mode, plan.lease) == (Fault.MALFORMED, "cold", None)
    fallback = planned(GOOD._replace(fallback=resume(plan_id="p2")._replace(**changes)))
    assert fallback.fault is Fault.MALFORMED


@pytest.mark.parametrize(
    "changes",
    [
        {"lease": Lease("", 60.0, 1)}, {"lease": Lease("l1", 0.0, 1)}, {"lease": Lease("l1", 60.0, -1)},
        {"hit_tokens": -1}, {"hit_tokens": 5000}, {"exact_hit_tokens": 961}, {"fallback": resume(plan_id="p1")},
        {"fallback": resume("snapshot", snapshot=True, plan_id="p2")},
    ],
    ids=str,
)  # fmt: skip
def test_what_goes_with_a_plan_fits_too(changes: dict[str, Any]) -> None:
    assert planned(GOOD._replace(**changes)).fault is Fault.MALFORMED


@pytest.mark.parametrize(
    "options", [{"allow_approximate": False}, {"supports": ["snapshot"]}, {"max_load_bytes_per_saved_token": 0.0}]
)
def test_a_plan_does_what_was_asked_for(options: dict[str, Any]) -> None:
    assert planned(GOOD._replace(resume=resume(), fallback=None), **options).fault is Fault.MALFORMED


def test_a_plan_for_somebody_else_is_malformed() -> None:
    ask = AskPlan("n", 1000, "mine", TOKENS)
    with pytest.raises(Exception, match="request_id"):
        check_plan(NAMESPACE, ask, GOOD._replace(request_id="theirs"))


def test_a_namespace_that_is_another_by_now_is_unknown_and_no_outage() -> None:
    stale = NAMESPACE._replace(fingerprint=b"\x01" * 32)
    client = Client(ScriptedTransport(*[GOOD._replace(fingerprint=bytes(32))] * 5))
    assert {client.plan(stale, tokens=TOKENS).fault for _ in range(5)} == {Fault.UNKNOWN}
    assert client.breaker_state.value == "closed"


@settings(max_examples=200)
@given(questions())
def test_whatever_the_planner_answers_is_plausible(question: Question) -> None:
    layout, request = question.layout, question.request
    plan, fallback = (make(layout, request, question.cached) for make in (resume_plan, fallback_plan))
    namespace = NAMESPACE._replace(
        block_tokens=layout.block_tokens,
        block_bytes=layout.block_bytes,
        snapshot_bytes=layout.snapshot_bytes,
        window_tokens=layout.window_tokens,
        state_layers=layout.state_layers,
        decoder_window_tokens=layout.decoder_window_tokens,
    )
    ask = AskPlan(
        "n",
        request.prompt_tokens,
        "r",
        hbm_tokens=request.hbm_tokens,
        allow_approximate=request.allow_approximate,
        supports=[ability.value for ability in request.supports],
        max_load_bytes_per_saved_token=request.max_load_bytes_per_saved_token,
    )
    first, second = answer_of(plan, layout, "p"), answer_of(fallback, layout, "f")
    check_plan(namespace, ask, PlanAnswer("r", first, second, Lease("l", 1.0, 0), 0, 0, None, None))


RECORD = StoreRecord(RecordClass.BLOCK, KEYS[0], 64, bytes(640), Provenance.EXACT)
OUTCOME = StoreOutcome(KEYS[0], 0, "block", "stored", None, "exact", 1)
SPEC = NamespaceSpec("default", "m", "1", "p", block_tokens=64)
CALLS: list[tuple[Callable[[Client], Any], Any]] = [
    *(
        (lambda client: client.register("n", SPEC), NAMESPACE._replace(**changes))
        for changes in (
            {"name": ""}, {"fingerprint": b""}, {"block_tokens": 128}, {"shards": 2}, {"block_bytes": -1},
            {"block_bytes": 0, "snapshot_bytes": 0}, {"hashes_per_block": 0}, {"hash_scheme": ""},
        )
    ),
    (lambda client: client.hash_tokens(NAMESPACE, TOKENS), HashedTokens(bytes(32), 64, [])),
    (lambda client: client.hash_tokens(NAMESPACE, TOKENS), HashedTokens(bytes(32), 128, KEYS)),
    *(
        (lambda client: client.store(NAMESPACE, [RECORD]).fault is None or None, StoreResult(outcomes, counts, True))
        for outcomes, counts in (([], {}), ([OUTCOME] * 2, {"stored": 2}), ([OUTCOME], {}))
    ),
    (lambda client: client.touch(NAMESPACE, RecordClass.BLOCK, KEYS[:1]), 2),
    (lambda client: client.delete(NAMESPACE, RecordClass.BLOCK, KEYS[:1]), -1),
    (lambda client: client.renew(PLAN) or None, Lease("another", 60.0, 1)),
    (lambda client: client.stats(), {}),
    (lambda client: client.health().status == "" or None, Health("", [])),
]  # fmt: skip


@pytest.mark.parametrize(("call", "outcome"), CALLS)
def test_every_verb_looks_at_its_answer(call: Callable[[Client], Any], outcome: Any) -> None:
    client = Client(ScriptedTransport(outcome))
    assert call(client) is None
    assert list(client.counters().values()) == [{"malformed": 1}]


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"tokens_by_source": {"prefill": 1}}'])
def test_a_page_of_a_proxy_is_no_release(body: bytes) -> None:
    with ScriptedServer([Reply(answer(body))]) as server, Client(server.url) as client:
        assert client.release(PLAN, PLAN.resume) is False
        assert client.counters() == {"release": {"malformed": 1}}


def test_a_huge_load_over_a_connection_costs_no_time() -> None:
    """What a lying service could make a client loop over is refused when the plan comes."""
    lie = {
        "request_id": "r", "lease": {"lease_id": "l1", "ttl_seconds": 60, "records": 1}, "fallback": None,
        "hit_tokens": 0, "exact_hit_tokens": 0, "reasons": {},
        "plan": resume()._asdict() | {
            "load": {"global": [0, 300_000_000], "snapshot": None}, "load_bytes": {"ssd": 0, "dram": 0},
        },
    }  # fmt: skip
    with ScriptedServer([Reply(answer(json.dumps(lie).encode()))]) as server, Client(server.url) as client:
        assert client.plan(NAMESPACE, tokens=TOKENS, request_id="r").fault is Fault.MALFORMED


def test_an_ask_of_another_length_is_refused_by_its_plan() -> None:
    ask = replace(AskPlan("n", 1000, "r", TOKENS), prompt_tokens=999)
    with pytest.raises(Exception, match="prompt_tokens"):
        check_plan(NAMESPACE, ask, GOOD)
