"""The client for asyncio: the verbs of :class:`~kvshelf_client.client.Client`, awaited."""

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from kvshelf_client.aio_places import AsyncPlaces
from kvshelf_client.answers import HashedTokens, Health, Namespace, Resume, StoreResult
from kvshelf_client.guard import Pause, Steps, Try
from kvshelf_client.landing import Loaded
from kvshelf_client.plans import Plan
from kvshelf_client.requests import NamespaceSpec, StoreRecord
from kvshelf_client.steps import run_async
from kvshelf_client.transport import AsyncTransport, transport_module
from kvshelf_client.verbs import Verbs
from kvshelf_client.words import RecordClass

if TYPE_CHECKING:
    from typing_extensions import Buffer, Unpack

    from kvshelf_client.landing import Destination
    from kvshelf_client.options import ClientOptions
    from kvshelf_client.verbs import PlanOptions

T = TypeVar("T")


class AsyncClient(Verbs):
    """A client of one service, for the tasks of one event loop.

    What is said of :class:`~kvshelf_client.client.Client` and its verbs goes for this one too. A verb that is cancelled
    lets go of its connection at once. Buffers must not be used, or freed, until a verb has returned or its cancellation
    has arrived.
    """

    def __init__(self, service: str | AsyncTransport, **options: "Unpack[ClientOptions]") -> None:
        super().__init__(options)
        if isinstance(service, str):
            service = transport_module(service).connect_async(service, self._options)
        elif not hasattr(service, "call"):
            raise ValueError(f"a service is an address such as http://127.0.0.1:8710, got {service!r}")
        self._transport = service
        self._places = AsyncPlaces(self._options.max_connections)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections. Calls after that come to nothing."""
        await self._transport.close()

    async def register(
        self, name: str, spec: NamespaceSpec, *, budget_seconds: float | None = None
    ) -> Namespace | None:
        """See :meth:`Client.register <kvshelf_client.client.Client.register>`."""
        return await self._run(self._register(name, spec, budget_seconds))

    async def hash_tokens(
        self, namespace: Namespace, tokens: "Buffer", *, budget_seconds: float | None = None
    ) -> HashedTokens | None:
        """See :meth:`Client.hash_tokens <kvshelf_client.client.Client.hash_tokens>`."""
        return await self._run(self._hash_tokens(namespace, tokens, budget_seconds))

    async def plan(
        self,
        namespace: Namespace,
        *,
        tokens: "Buffer | None" = None,
        hashes: "Sequence[bytes] | Buffer | None" = None,
        prompt_tokens: int | None = None,
        request_id: str | None = None,
        budget_seconds: float | None = None,
        **options: "Unpack[PlanOptions]",
    ) -> Plan:
        """See :meth:`Client.plan <kvshelf_client.client.Client.plan>`."""
        return await self._run(
            self._plan(namespace, tokens, hashes, prompt_tokens, request_id, budget_seconds, options)
        )

    async def fetch_into(
        self, plan: Plan, destination: "Destination", *, shard: int | None = None, budget_seconds: float | None = None
    ) -> Loaded:
        """See :meth:`Client.fetch_into <kvshelf_client.client.Client.fetch_into>`."""
        return await self._run(self._fetch_into(plan, destination, shard, budget_seconds))

    async def store(
        self,
        namespace: Namespace,
        records: Iterable[StoreRecord],
        *,
        ran: Resume | None = None,
        durable: bool = True,
        supersedes: bytes | None = None,
        budget_seconds: float | None = None,
    ) -> StoreResult:
        """See :meth:`Client.store <kvshelf_client.client.Client.store>`."""
        return await self._run(self._store(namespace, records, ran, durable, supersedes, budget_seconds))

    async def touch(
        self,
        namespace: Namespace,
        record_class: RecordClass,
        keys: Iterable[bytes],
        *,
        budget_seconds: float | None = None,
    ) -> int | None:
        """See :meth:`Client.touch <kvshelf_client.client.Client.touch>`."""
        return await self._run(self._touch(namespace, record_class, keys, budget_seconds))

    async def delete(
        self,
        namespace: Namespace,
        record_class: RecordClass,
        keys: Iterable[bytes],
        *,
        budget_seconds: float | None = None,
    ) -> int | None:
        """See :meth:`Client.delete <kvshelf_client.client.Client.delete>`."""
        return await self._run(self._delete(namespace, record_class, keys, budget_seconds))

    async def renew(self, plan: Plan, *, budget_seconds: float | None = None) -> bool:
        """See :meth:`Client.renew <kvshelf_client.client.Client.renew>`."""
        return await self._run(self._renew(plan, budget_seconds))

    async def release(self, plan: Plan, ran: Resume, *, budget_seconds: float | None = None) -> bool:
        """See :meth:`Client.release <kvshelf_client.client.Client.release>`."""
        return await self._run(self._release(plan, ran, budget_seconds))

    async def stats(self, *, budget_seconds: float | None = None) -> dict[str, object] | None:
        """See :meth:`Client.stats <kvshelf_client.client.Client.stats>`."""
        return await self._run(self._stats(budget_seconds))

    async def health(self, *, budget_seconds: float | None = None) -> Health:
        """See :meth:`Client.health <kvshelf_client.client.Client.health>`."""
        return await self._run(self._health(budget_seconds))

    async def _run(self, steps: Steps[T]) -> T:
        return await run_async(steps, self._do)

    async def _do(self, step: Try | Pause) -> Any:
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        async with self._places.taken(step.deadline):
            step.begin()
            return await self._transport.call(step.request, step.deadline)
