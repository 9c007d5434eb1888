"""The HTTP transport for asyncio: the same steps as for threads, waited for on the event loop."""

import asyncio
from typing import TypeVar

from kvshelf_client.deadline import Deadline
from kvshelf_client.http.exchange import Exchanges
from kvshelf_client.http.steps import Wait
from kvshelf_client.requests import Request
from kvshelf_client.steps import run_async
from kvshelf_client.transport import TransportOptions

T = TypeVar("T")


class AsyncHttpTransport:
    """See :class:`~kvshelf_client.transport.AsyncTransport`. To be used on one event loop."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        self._exchanges = Exchanges(url, options)

    async def call(self, request: Request[T], deadline: Deadline) -> T:
        """See :meth:`AsyncTransport.call <kvshelf_client.transport.AsyncTransport.call>`."""
        return await run_async(self._exchanges.call(request, deadline), wait_async)

    async def close(self) -> None:
        """See :meth:`Transport.close <kvshelf_client.transport.Transport.close>`."""
        self._exchanges.close()


async def wait_async(step: Wait | None) -> bool:
    """Do a step on the event loop."""
    if step is None:
        await asyncio.sleep(0)
        return True
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[bool] = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if step.to_write else (loop.add_reader, loop.remove_reader)
    timer = loop.call_later(step.seconds, _settle, ready, False)
    add(step.fd, _settle, ready, True)
    try:
        return await ready
    finally:
        remove(step.fd)
        timer.cancel()


def _settle(future: "asyncio.Future[bool]", value: bool) -> None:
    if not future.done():
        future.set_result(value)
