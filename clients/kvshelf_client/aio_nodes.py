"""Several service nodes, for asyncio: the verbs of :class:`~kvshelf_client.nodes.Nodes`, awaited."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kvshelf_client.aio import AsyncClient
from kvshelf_client.answers import Namespace
from kvshelf_client.nodes import Placing
from kvshelf_client.plans import Plan
from kvshelf_client.requests import NamespaceSpec
from kvshelf_client.steps import run_async

if TYPE_CHECKING:
    from typing_extensions import Buffer, Unpack

    from kvshelf_client.options import ClientOptions
    from kvshelf_client.verbs import PlanOptions


class AsyncNodes(Placing[AsyncClient]):
    """Clients of several nodes, for the tasks of one event loop; otherwise as :class:`~kvshelf_client.nodes.Nodes`."""

    def __init__(self, nodes: Sequence[str], **options: "Unpack[ClientOptions]") -> None:
        super().__init__(nodes, options, AsyncClient)

    async def __aenter__(self) -> "AsyncNodes":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all clients."""
        for client in self.clients.values():
            await client.close()

    async def register(
        self, name: str, spec: NamespaceSpec, *, budget_seconds: float | None = None
    ) -> Namespace | None:
        """See :meth:`Nodes.register <kvshelf_client.nodes.Nodes.register>`."""
        return await run_async(self._register(name, spec, budget_seconds), _awaited)

    async def plan(
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
        """See :meth:`Nodes.plan <kvshelf_client.nodes.Nodes.plan>`."""
        asked = {"tokens": tokens, "hashes": hashes, "prompt_tokens": prompt_tokens, "request_id": request_id}
        return await run_async(self._plan(namespace, affinity, budget_seconds, {**asked, **options}), _awaited)


async def _awaited(call: Callable[[], Any]) -> Any:
    return await call()
