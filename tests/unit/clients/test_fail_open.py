"""What a client makes of trouble: an answer that there is nothing, a reason, and a count; or, when strict, an error."""

import asyncio
import logging
from typing import Any

import pytest

from kvshelf_client import AsyncClient, Client, Fault, Loaded, Plan, RecordClass, with_request_id
from kvshelf_client.answers import Health, Lease, PlanAnswer, StoreResult
from kvshelf_client.errors import (
    AnswerError,
    DeadlineError,
    FrameError,
    KvshelfError,
    ServiceError,
    UnreachableError,
    WireVersionError,
)
from kvshelf_client.requests import AskPlan, Release, Renew, Request
from tests.support.client import Buffers
from tests.support.scripted_server import Reply, ScriptedServer, answer
from tests.support.scripted_transport import ScriptedTransport
from tests.support.wire import NAMESPACE, TOKENS, block_frame, plan_for, resume, snapshot_answer

ANSWER = PlanAnswer("r", resume(), None, Lease("l1", 60.0, 4), 256, 0, None, None)
PLAN = plan_for(ANSWER)
BUSY = ServiceError(503, {"detail": "stopping"})

TROUBLE: list[tuple[KvshelfError, Fault]] = [
    (UnreachableError("refused"), Fault.UNREACHABLE),
    (DeadlineError("late"), Fault.TIMEOUT),
    (AnswerError("no JSON"), Fault.MALFORMED),
    (FrameError("no frame"), Fault.MALFORMED),
    (WireVersionError("2"), Fault.VERSION),
    (BUSY, Fault.BUSY),
    (ServiceError(429, {}), Fault.BUSY),
    (ServiceError(507, {}), Fault.BUSY),
    (ServiceError(500, {}), Fault.UNREACHABLE),
    (ServiceError(502, {}), Fault.UNREACHABLE),
    (ServiceError(401, {}), Fault.DENIED),
    (ServiceError(403, {}), Fault.DENIED),
    (ServiceError(404, {}), Fault.UNKNOWN),
    (ServiceError(409, {}), Fault.REFUSED),
    (ServiceError(422, {}), Fault.REFUSED),
]


def always(error: BaseException) -> ScriptedTransport:
    return ScriptedTransport(*[error] * 3)


@pytest.mark.parametrize(("error", "fault"), TROUBLE, ids=lambda value: str(value))
def test_a_plan_is_cold_whatever_happens(error: KvshelfError, fault: Fault) -> None:
    client = Client(always(error))
    plan = client.plan(NAMESPACE, tokens=TOKENS)
    assert (plan.fault, plan.lease, plan.resume.mode, plan.resume.run_start) == (fault, None, "cold", 0)
    assert plan.resume.tokens_by_source == {"hbm": 0, "dram": 0, "ssd": 0, "replay": 0, "prefill": 1000}
    assert client.counters()["plan"][fault.value] == 1
    with pytest.raises(type(error)):
        Client(always(error), strict=True).plan(NAMESPACE, tokens=TOKENS)


@pytest.mark.parametrize(("error", "fault"), TROUBLE, ids=lambda value: str(value))
def test_every_verb_answers_that_there_is_nothing(error: KvshelfError, fault: Fault) -> None:
    def client() -> Client:
        return Client(always(error))

    keys = [bytes(32)]
    assert client().register("n", None) is None  # type: ignore[arg-type]
    assert client().hash_tokens(NAMESPACE, TOKENS) is None
    assert client().touch(NAMESPACE, RecordClass.BLOCK, keys) is None
    assert client().delete(NAMESPACE, RecordClass.BLOCK, keys) is None
    assert client().renew(PLAN) is False
    assert client().release(PLAN, PLAN.resume) is False
    assert client().stats() is None
    assert client().health() == Health("down", [fault.value])
    with with_request_id("mine"):
        assert client().store(NAMESPACE, []) == StoreResult([], {}, False, fault, "mine")
    loaded = client().fetch_into(PLAN, Buffers(NAMESPACE))
    assert (loaded.fault, loaded.resume.mode, loaded.verified_tokens) == (fault, "cold", 0)


def test_a_cold_plan_of_trouble_has_nothing_to_fetch_or_to_release() -> None:
    transport = always(DeadlineError("late"))
    client = Client(transport)
    plan = client.plan(NAMESPACE, tokens=TOKENS)
    loaded = client.fetch_into(plan, Buffers(NAMESPACE))
    assert loaded == Loaded(
        plan.resume, [], has_snapshot=False, verified_tokens=0, fault=Fault.TIMEOUT, request_id=plan.call_id
    )
    assert not client.renew(plan)
    assert not client.release(plan, loaded.resume)
    assert len(transport.asked) == 1


def test_only_a_mistake_of_the_operator_is_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kvshelf_client"):
        Client(ScriptedTransport(DeadlineError("late"))).plan(NAMESPACE, tokens=TOKENS)
        assert caplog.text == ""
        Client(ScriptedTransport(ServiceError(401, {"detail": "no token"}))).plan(NAMESPACE, tokens=TOKENS)
    assert "plan came to nothing: HTTP 401: no token" in caplog.text


def plan_again(client: Client, plan: Plan) -> AskPlan:
    """Plan the same request once more; returns what was asked."""
    transport = client._transport
    assert isinstance(transport, ScriptedTransport)
    transport.outcomes = [ANSWER]
    client.plan(NAMESPACE, tokens=TOKENS, request_id=plan.request_id)
    asked = transport.asked[-1]
    assert isinstance(asked, AskPlan)
    return asked


def test_what_failed_to_load_is_not_offered_again_to_the_same_request() -> None:
    client = Client(ScriptedTransport(ANSWER, DeadlineError("late")))
    plan = client.plan(NAMESPACE, tokens=TOKENS)
    client.fetch_into(plan, Buffers(NAMESPACE))
    assert plan_again(client, plan).max_load_bytes_per_saved_token == 0
    other = plan_for(ANSWER._replace(request_id="another"))
    assert plan_again(client, other).max_load_bytes_per_saved_token is None


def test_a_released_request_is_forgotten() -> None:
    client = Client(ScriptedTransport(ANSWER, DeadlineError("late"), None))
    plan = client.plan(NAMESPACE, tokens=TOKENS)
    loaded = client.fetch_into(plan, Buffers(NAMESPACE))
    assert client.release(plan, loaded.resume)
    assert plan_again(client, plan).max_load_bytes_per_saved_token is None


def test_a_request_that_loaded_all_may_be_offered_more() -> None:
    frames = b"".join(map(block_frame, range(4)))
    client = Client(ScriptedTransport(ANSWER, frames))
    plan = client.plan(NAMESPACE, tokens=TOKENS)
    assert client.fetch_into(plan, Buffers(NAMESPACE)).fault is None
    assert plan_again(client, plan).max_load_bytes_per_saved_token is None


def test_what_was_run_is_what_is_released() -> None:
    plan = plan_for(snapshot_answer())
    assert plan.fallback is not None
    partial = plan.settle(has_snapshot=False, verified_tokens=128)
    transport = ScriptedTransport(None, None, None)
    client = Client(transport)
    for ran in (plan.resume, plan.fallback, partial):
        client.release(plan, ran)
    assert [asked.ran for asked in transport.asked if isinstance(asked, Release)] == ["plan", "fallback", "cold"]


def test_the_budget_is_that_of_the_call_or_of_the_client() -> None:
    seen: list[float] = []
    client = Client(ScriptedTransport(PLAN.lease, PLAN.lease, on_call=seen.append), budget_seconds=7)
    client.renew(PLAN)
    client.renew(PLAN, budget_seconds=3)
    assert 6 < seen[0] <= 7
    assert 2 < seen[1] <= 3


@pytest.mark.parametrize(
    "arguments",
    [{}, {"tokens": b"", "hashes": []}, {"hashes": []}, {"tokens": bytes(8), "prompt_tokens": 3}, {"tokens": b"123"}],
)
def test_a_mistake_in_a_call_is_an_error_and_nothing_is_sent(arguments: dict[str, Any]) -> None:
    transport = ScriptedTransport()
    with pytest.raises(ValueError, match="tokens"):
        Client(transport).plan(NAMESPACE, **arguments)
    assert transport.asked == []


def test_a_request_id_is_made_for_every_plan() -> None:
    transport = ScriptedTransport(ANSWER, ANSWER)
    client = Client(transport)
    plans = [client.plan(NAMESPACE, tokens=TOKENS) for _ in range(2)]
    asked = [request.request_id for request in transport.asked if isinstance(request, AskPlan)]
    assert asked == [plan.request_id for plan in plans]
    assert len(set(asked)) == 2


def test_closing_closes_the_transport() -> None:
    transport = ScriptedTransport()
    with Client(transport):
        assert not transport.is_closed
    assert transport.is_closed


def test_requests_say_what_may_be_repeated() -> None:
    repeated = {kind.verb: kind.may_repeat for kind in Request.__subclasses__()}
    assert {verb for verb, may_repeat in repeated.items() if not may_repeat} == {"store"}
    assert Renew("l1").verb == "renew"


def test_one_impatient_caller_shuts_nobody_out() -> None:
    """Over a real connection to a service that takes 50 ms: who gives it 5 ms gets nothing, and everybody else all."""
    replies = [Reply(answer(b'{"uptime": 1}'), delay_seconds=0.05)] * 40
    with ScriptedServer(replies) as server, Client(server.url) as client:
        for _ in range(10):
            assert client.stats(budget_seconds=0.005) is None
            assert client.stats() == {"uptime": 1}
    assert client.counters() == {"stats": {"timeout": 10, "ok": 10}}


def test_a_crowd_in_the_clients_own_line_opens_no_breaker() -> None:
    """More calls at once than a service can answer in their time: what was never sent is nobody's fault but ours."""

    async def crowd(url: str) -> tuple[list[Any], dict[str, dict[str, int]]]:
        async with AsyncClient(url, budget_seconds=0.5, max_connections=1) as client:
            answers = await asyncio.gather(*(client.stats() for _ in range(100)))
            return answers, client.counters()

    with ScriptedServer([Reply(answer(b'{"uptime": 1}'), delay_seconds=0.05)] * 200) as server:
        answers, counters = asyncio.run(crowd(server.url))
    assert 0 < answers.count(None) < 100
    assert set(counters["stats"]) == {"ok", "timeout"}
    assert "breaker" not in counters
