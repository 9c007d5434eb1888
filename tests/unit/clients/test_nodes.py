"""Several nodes: who is asked, who is asked next, what is counted, and that both kinds of client do the same."""

import asyncio
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from kvshelf_client import AsyncClient, AsyncNodes, Client, Fault, NamespaceSpec, Nodes, Plan
from kvshelf_client.answers import Lease, PlanAnswer
from kvshelf_client.errors import DeadlineError, KvshelfError, ServiceError, UnreachableError
from kvshelf_client.nodes import Placing
from kvshelf_client.placement import placed
from kvshelf_client.requests import AskPlan
from tests.support.client import Buffers
from tests.support.scripted_transport import AsyncScriptedTransport, ScriptedTransport
from tests.support.wire import KEYS, NAMESPACE, TOKENS, block_frame, resume

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kvshelf_client.options import ClientOptions

ANSWER = PlanAnswer("r", resume(), None, Lease("l1", 60.0, 4), 256, 0, None, None)
ORDER = placed(["http://a", "http://b", "http://c"], b"session")
FIRST, SECOND, THIRD = ORDER
SPEC = NamespaceSpec("default", "m", "1", "p", block_tokens=64)
DOWN = [UnreachableError("refused")] * 3
LOST = ServiceError(404, {})


class Scripted(Nodes):
    """Nodes that answer by script."""

    def __init__(self, transports: Mapping[str, ScriptedTransport], **options: "Unpack[ClientOptions]") -> None:
        Placing.__init__(self, sorted(transports), options, lambda node, **_: Client(transports[node], **options))


class AsyncScripted(AsyncNodes):
    """The same for asyncio."""

    def __init__(self, transports: Mapping[str, AsyncScriptedTransport]) -> None:
        Placing.__init__(self, sorted(transports), {}, lambda node, **_: AsyncClient(transports[node]))


def plan(nodes: Nodes, **options: Any) -> Plan:
    return nodes.plan(NAMESPACE, affinity="session", tokens=TOKENS, **options)


def asked(transport: ScriptedTransport) -> list[str]:
    return [request.verb for request in transport.asked]


SCRIPTS: list[tuple[list[list[Any]], str, str]] = [
    ([[ANSWER], [], []], FIRST, "first"),
    ([DOWN, [ANSWER], []], SECOND, "instead"),
    ([[DeadlineError("late")], DOWN, [ANSWER]], THIRD, "instead"),
    ([[ServiceError(503, {})], [ANSWER], []], SECOND, "instead"),
    ([[LOST], [LOST], [ANSWER]], THIRD, "instead"),
    ([DOWN, DOWN, DOWN], FIRST, "nowhere"),
]


@pytest.mark.parametrize(("scripts", "node", "word"), SCRIPTS)
def test_the_first_node_that_answers_has_the_plan(scripts: list[list[Any]], node: str, word: str) -> None:
    transports = {each: ScriptedTransport(*script) for each, script in zip(ORDER, scripts, strict=True)}
    nodes = Scripted(transports)
    made = plan(nodes)
    assert made.node == node
    assert nodes.of(made) is nodes.clients[node]
    assert (made.fault is None) == (word != "nowhere")
    assert {each: counts["placed"] for each, counts in nodes.counters().items() if counts["placed"]} == {
        node: {word: 1}
    }
    ids = {request.request_id for each in transports.values() for request in each.asked if isinstance(request, AskPlan)}
    assert ids == {made.request_id}, "it is one request, whoever is asked"
    others = {each: AsyncScriptedTransport(*script) for each, script in zip(ORDER, scripts, strict=True)}
    assert asyncio.run(_planned(others)) == (made.node, made.resume, made.fault, nodes.counters())
    assert all(each.is_closed for each in others.values())


async def _planned(transports: Mapping[str, AsyncScriptedTransport]) -> tuple[Any, ...]:
    async with AsyncScripted(transports) as nodes:
        made = await nodes.plan(NAMESPACE, affinity=b"session", tokens=TOKENS)
        return made.node, made.resume, made.fault, nodes.counters()


def test_what_a_plan_loads_comes_from_its_node() -> None:
    frames = b"".join(map(block_frame, range(4)))
    transports = {
        FIRST: ScriptedTransport(*DOWN),
        SECOND: ScriptedTransport(ANSWER, frames),
        THIRD: ScriptedTransport(),
    }
    nodes = Scripted(transports)
    made = plan(nodes)
    assert nodes.of(made).fetch_into(made, Buffers(NAMESPACE)).resume == made.resume
    assert asked(transports[SECOND]) == ["plan", "fetch"]
    with pytest.raises(ValueError, match="not made over nodes"):
        nodes.of(Client(ScriptedTransport(ANSWER)).plan(NAMESPACE, tokens=TOKENS))


def test_a_node_that_is_away_is_left_alone_by_its_breaker() -> None:
    dead = ScriptedTransport(*[UnreachableError("refused")] * 150)
    nodes = Scripted({FIRST: dead, SECOND: ScriptedTransport(*[ANSWER] * 50), THIRD: ScriptedTransport()})
    assert {plan(nodes).node for _ in range(50)} == {SECOND}
    counts = nodes.counters()
    assert counts[FIRST]["plan"]["breaker_open"] > 0
    assert counts[FIRST]["breaker"] == {"opened": 1}
    assert counts[SECOND]["placed"] == {"instead": 50}


def test_each_node_but_the_last_may_take_half_of_the_time_that_is_left() -> None:
    seen: dict[str, list[float]] = {node: [] for node in ORDER}
    scripts = {node: ScriptedTransport(DeadlineError("late"), on_call=seen[node].append) for node in ORDER}
    plan(Scripted(scripts), budget_seconds=8)
    assert [round(seen[node][0]) for node in ORDER] == [4, 4, 8]


def test_without_time_the_next_one_is_not_asked() -> None:
    others = [ScriptedTransport(), ScriptedTransport()]
    nodes = Scripted(dict(zip(ORDER, [ScriptedTransport(DeadlineError("late")), *others], strict=True)))
    assert plan(nodes, budget_seconds=0).fault is Fault.TIMEOUT
    assert [each.asked for each in others] == [[], []]


def test_a_namespace_is_registered_everywhere_and_told_to_a_node_that_lost_it() -> None:
    scripts: dict[str, list[Any]] = {FIRST: [*DOWN, LOST, NAMESPACE, ANSWER], SECOND: [NAMESPACE], THIRD: [NAMESPACE]}
    transports = {node: ScriptedTransport(*script) for node, script in scripts.items()}
    nodes = Scripted(transports)
    assert nodes.register("n", SPEC) == NAMESPACE
    assert [asked(each)[-1] for each in transports.values()] == ["register"] * 3
    made = plan(nodes)
    assert (made.node, made.fault) == (FIRST, None)
    assert asked(transports[FIRST]) == ["register"] * 3 + ["plan", "register", "plan"]


def test_where_no_node_registers_it_there_is_no_namespace() -> None:
    assert Scripted({node: ScriptedTransport(*DOWN) for node in ORDER}).register("n", SPEC) is None


def test_without_a_key_the_first_block_decides() -> None:
    nodes = Scripted({node: ScriptedTransport(*[ANSWER] * 2) for node in ORDER})
    expected = nodes.order_of(KEYS[0])[0]
    assert nodes.plan(NAMESPACE, tokens=TOKENS).node == expected
    assert nodes.plan(NAMESPACE, hashes=KEYS, prompt_tokens=1000).node == expected


@pytest.mark.parametrize("addresses", [[], "http://a", ["http://a", "http://a"], ["nowhere"]])
def test_addresses_that_are_none(addresses: list[str]) -> None:
    with pytest.raises(ValueError, match="address"):
        Nodes(addresses)


def test_nodes_are_never_strict() -> None:
    with pytest.raises(ValueError, match="never strict"):
        Nodes(["http://a"], strict=True)


def test_mistakes_in_a_call_are_errors() -> None:
    nodes = Scripted({node: ScriptedTransport() for node in ORDER})
    with pytest.raises(ValueError, match="plan takes tokens, or hashes"):
        nodes.plan(NAMESPACE)


def test_both_have_the_same_verbs_with_the_same_arguments() -> None:
    for name in ("register", "plan", "close", "of", "order_of", "counters"):
        assert inspect.signature(getattr(Nodes, name)) == inspect.signature(getattr(AsyncNodes, name))
        assert inspect.getdoc(getattr(AsyncNodes, name))


def test_closing_closes_all() -> None:
    transports = {node: ScriptedTransport() for node in ORDER}
    with Scripted(transports):
        assert not any(each.is_closed for each in transports.values())
    assert all(each.is_closed for each in transports.values())


def test_errors_of_every_kind_move_on() -> None:
    for error in (ServiceError(401, {}), ServiceError(422, {}), KvshelfError("odd")):
        transports = {FIRST: ScriptedTransport(error), SECOND: ScriptedTransport(ANSWER), THIRD: ScriptedTransport()}
        assert plan(Scripted(transports)).node == SECOND
