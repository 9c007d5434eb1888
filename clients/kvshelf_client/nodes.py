"""Several service nodes: each session's chain has its place on one of them, and another where that one is away."""

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kvshelf_client.answers import Namespace
from kvshelf_client.client import Client
from kvshelf_client.counters import Counters
from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import Fault
from kvshelf_client.names import check_name
from kvshelf_client.options import BUDGET_SECONDS, check_budget
from kvshelf_client.placement import default_affinity, placed
from kvshelf_client.plans import Plan
from kvshelf_client.requests import NamespaceSpec
from kvshelf_client.steps import run
from kvshelf_client.verbs import Verbs

if TYPE_CHECKING:
    from typing_extensions import Buffer, Unpack

    from kvshelf_client.options import ClientOptions
    from kvshelf_client.verbs import PlanOptions

C = TypeVar("C", bound=Verbs)
T = TypeVar("T")

Calls = Generator[Callable[[], Any], Any, T]
"""Calls to be made of the clients, one after the other; each is sent what it came to."""


class Placing(Generic[C]):
    """What :class:`Nodes` and :class:`~kvshelf_client.aio_nodes.AsyncNodes` have in common.

    Raises:
        ValueError: no node, one twice, no address, or strict clients: these would raise for a node that is away.
    """

    def __init__(self, nodes: Sequence[str], options: "ClientOptions", connect: "Callable[..., C]") -> None:
        if not nodes or isinstance(nodes, str) or len(set(nodes)) != len(nodes) or options.get("strict"):
            raise ValueError("nodes are at least one address, each once, and never strict")
        self.clients: Mapping[str, C] = {node: connect(node, **options) for node in nodes}
        """The client of each node, by its address."""
        self._budget_seconds = options.get("budget_seconds", BUDGET_SECONDS)
        self._placements = Counters()
        self._lock = threading.Lock()
        self._specs: dict[str, NamespaceSpec] = {}

    def order_of(self, affinity: str | bytes) -> list[str]:
        """The nodes in the order in which they are asked for that key: the first has its chain, if it is there."""
        return placed(self.clients, affinity.encode() if isinstance(affinity, str) else affinity)

    def of(self, plan: Plan) -> C:
        """The client of the node that a plan came from: fetch, store, renew and release over it."""
        if plan.node is None:
            raise ValueError("this plan was not made over nodes")
        return self.clients[plan.node]

    def counters(self) -> dict[str, dict[str, dict[str, int]]]:
        """By node what its client counts, and under ``placed`` what has become of the plans.

        ``first``: it had its place there. ``instead``: it was answered there because the nodes before did not answer.
        ``nowhere``: it had its place there, and no node answered.
        """
        placements = self._placements.snapshot()
        return {
            node: {**client.counters(), "placed": placements.get(node, {})} for node, client in self.clients.items()
        }

    def _register(self, name: str, spec: NamespaceSpec, budget: float | None) -> "Calls[Namespace | None]":
        check_name(name)
        with self._lock:
            self._specs[name] = spec
        answers = []
        for client in self.clients.values():
            answers.append((yield partial(client.register, name, spec, budget_seconds=budget)))  # type: ignore[attr-defined]
        return next((answer for answer in answers if answer is not None), None)

    def _plan(
        self, namespace: Namespace, affinity: str | bytes | None, budget: float | None, asked: dict[str, Any]
    ) -> Calls[Plan]:
        if affinity is None:
            affinity = default_affinity(namespace, asked["tokens"], asked["hashes"], asked.get("extra", b""))
        order = self.order_of(affinity)
        deadline = Deadline(self._budget_seconds if budget is None else check_budget(budget))
        plans: list[Plan] = []
        for node in order:
            # One that hangs leaves half of the time to the others.
            share = 1 if node == order[-1] else 2
            plan = yield from self._plan_at(node, namespace, deadline.within(deadline.remaining_seconds / share), asked)
            if plan.fault is None:
                self._placements.add(node, "first" if node == order[0] else "instead")
                return plan
            plans.append(plan)
            asked = {**asked, "request_id": plan.request_id}
            if deadline.is_over:
                break
        self._placements.add(order[0], "nowhere")
        return plans[0]

    def _plan_at(self, node: str, namespace: Namespace, deadline: Deadline, asked: dict[str, Any]) -> Calls[Plan]:
        """Plan on one node; one that has lost the namespace, or was away when it was registered, is told it first."""
        client: Any = self.clients[node]
        plan: Plan = yield partial(client.plan, namespace, budget_seconds=deadline.remaining_seconds, **asked)
        spec = self._specs.get(namespace.name)
        if plan.fault is Fault.UNKNOWN and spec is not None:
            yield partial(client.register, namespace.name, spec, budget_seconds=deadline.remaining_seconds)
            plan = yield partial(client.plan, namespace, budget_seconds=deadline.remaining_seconds, **asked)
        return plan.at(node)


class Nodes(Placing[Client]):
    """Clients of several nodes, for threads. Options are those of :class:`~kvshelf_client.client.Client`.

    Name the nodes alike in every engine: a chain's place goes by the names.
    """

    def __init__(self, nodes: Sequence[str], **options: "Unpack[ClientOptions]") -> None:
        super().__init__(nodes, options, Client)

    def __enter__(self) -> "Nodes":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all clients."""
        for client in self.clients.values():
            client.close()

    def register(self, name: str, spec: NamespaceSpec, *, budget_seconds: float | None = None) -> Namespace | None:
        """Register a namespace on all nodes, with that budget each; None when no node answered.

        A node that did not is told the namespace when it is first asked for a plan.
        """
        return run(self._register(name, spec, budget_seconds), lambda call: call())

    def plan(
        self,
        namespace: Namespace,
        *,
        affinity: str | bytes | None = None,
        tokens: "Buffer | None" = None,
        hashes: "Sequence[bytes] | Buffer | None" = None,
        prompt_tokens: int | None = None,
        request_id: str | None = None,
        budget_seconds: float | None = None,
        **options: "Unpack[PlanOptions]",
    ) -> Plan:
        """Ask the node that the chain has its place on, and where that comes to nothing the next one, in the budget.

        ``affinity`` is the same for all turns of a session, such as its id; without it the first block decides.
        ``plan.node`` says which node answered. Otherwise as :meth:`Client.plan <kvshelf_client.client.Client.plan>`.
        """
        asked = {"tokens": tokens, "hashes": hashes, "prompt_tokens": prompt_tokens, "request_id": request_id}
        return run(self._plan(namespace, affinity, budget_seconds, {**asked, **options}), lambda call: call())
