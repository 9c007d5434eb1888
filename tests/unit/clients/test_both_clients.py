"""The two clients are the same client: each verb of one is a verb of the other, and answers alike."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kvshelf_client import AsyncClient, Client, Fault, NamespaceSpec, RecordClass, with_request_id
from kvshelf_client.answers import HashedTokens, Health, Lease, PlanAnswer, StoreResult
from kvshelf_client.errors import DeadlineError, ServiceError, UnreachableError
from tests.support.client import Buffers
from tests.support.scripted_transport import AsyncScriptedTransport, ScriptedTransport
from tests.support.wire import KEYS as BLOCK_KEYS
from tests.support.wire import NAMESPACE, TOKENS, block_frame, plan_for, resume

ANSWER = PlanAnswer("r", resume(), None, Lease("l1", 60.0, 4), 256, 0, None, None)
PLAN = plan_for(ANSWER)
SPEC = NamespaceSpec("default", "m", "1", "p", block_tokens=64)
VERBS = ["register", "hash_tokens", "plan", "fetch_into", "store", "touch", "delete", "renew", "release"]
VERBS += ["stats", "health"]


def test_they_have_the_same_verbs_with_the_same_arguments() -> None:
    public = {name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    assert public == {*VERBS, "close", "counters"}
    for name in public - {"counters"}:
        ours, theirs = getattr(Client, name), getattr(AsyncClient, name)
        assert inspect.signature(ours) == inspect.signature(theirs), name
        assert inspect.iscoroutinefunction(theirs)
        assert inspect.getdoc(ours)
        assert inspect.getdoc(theirs)


KEYS = [bytes(32)]
CALLS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "register": (lambda client: client.register("n", SPEC), NAMESPACE),
    "hash_tokens": (lambda client: client.hash_tokens(NAMESPACE, TOKENS), HashedTokens(bytes(32), 64, BLOCK_KEYS)),
    "plan": (lambda client: client.plan(NAMESPACE, tokens=TOKENS, request_id="r"), ANSWER),
    "fetch_into": (
        lambda client: client.fetch_into(PLAN, Buffers(NAMESPACE)),
        b"".join(map(block_frame, range(4))),
    ),
    "store": (lambda client: client.store(NAMESPACE, [], ran=PLAN.resume), StoreResult([], {}, True)),
    "touch": (lambda client: client.touch(NAMESPACE, RecordClass.BLOCK, KEYS), 1),
    "delete": (lambda client: client.delete(NAMESPACE, RecordClass.SNAPSHOT, KEYS), 2),
    "renew": (lambda client: client.renew(PLAN), PLAN.lease),
    "release": (lambda client: client.release(PLAN, PLAN.resume), None),
    "stats": (lambda client: client.stats(), {"a": 1}),
    "health": (lambda client: client.health(), Health("ok", [])),
}


async def _awaited(client: AsyncClient, call: Callable[[Any], Awaitable[Any]]) -> Any:
    async with client:
        return await call(client)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "trouble", [(), (UnreachableError("once"),), (ServiceError(503, {}, 0.001),), (DeadlineError(""),)]
)
def test_they_ask_and_answer_alike(verb: str, trouble: tuple[Exception, ...]) -> None:
    call, outcome = CALLS[verb]
    ours, theirs = ScriptedTransport(*trouble, outcome), AsyncScriptedTransport(*trouble, outcome)
    first, second = Client(ours), AsyncClient(theirs)
    with with_request_id("r"):
        answer = call(first)
        assert answer == asyncio.run(_awaited(second, call))
    assert {asked.call_id for asked in ours.asked + theirs.asked} == {"r"}
    assert first.counters() == second.counters()
    assert [type(asked) for asked in ours.asked] == [type(asked) for asked in theirs.asked]
    assert (ours.outcomes, theirs.is_closed) == (theirs.outcomes, True)


def test_the_words_of_the_counters_are_those_of_the_faults() -> None:
    client = Client(ScriptedTransport(DeadlineError("late")))
    client.stats()
    assert client.counters() == {"stats": {Fault.TIMEOUT.value: 1}}
