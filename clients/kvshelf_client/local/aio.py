"""The local transport for asyncio: the same steps, waited for on the event loop."""

from typing import TypeVar

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import KvshelfError
from kvshelf_client.http.aio import wait_async
from kvshelf_client.local.path import LocalPath
from kvshelf_client.local.transport import pause_after
from kvshelf_client.requests import Fetch, FindLocal, Request
from kvshelf_client.steps import run_async
from kvshelf_client.transport import AsyncTransport, TransportOptions

T = TypeVar("T")


class AsyncLocalTransport:
    """See :class:`~kvshelf_client.transport.AsyncTransport`. Arguments as :class:`LocalTransport`."""

    def __init__(self, rest: AsyncTransport, options: TransportOptions) -> None:
        self._rest = rest
        self._options = options
        self.path = LocalPath(options)

    async def call(self, request: Request[T], deadline: Deadline) -> T:
        """See :meth:`AsyncTransport.call <kvshelf_client.transport.AsyncTransport.call>`."""
        if isinstance(request, Fetch):
            if self.path.is_sought:
                try:
                    found = await self._rest.call(FindLocal(), deadline.within(self._options.connect_seconds))
                    self.path.found(found)
                except KvshelfError as error:
                    self.path.put_off(pause_after(error))
            if self.path.is_there and await run_async(self.path.fetch(request, deadline), wait_async):
                return None  # type: ignore[return-value]
        return await self._rest.call(request, deadline)

    async def close(self) -> None:
        """See :meth:`AsyncTransport.close <kvshelf_client.transport.AsyncTransport.close>`."""
        self.path.close()
        await self._rest.close()
