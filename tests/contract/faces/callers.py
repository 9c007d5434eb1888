"""One way to call a service, whatever the client behind it: the verbs of :class:`kvshelf_client.Client`, for threads.

An ``AsyncClient`` runs on an event loop in a thread of its own.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from kvshelf_client import AsyncClient, Client

Caller = Client
"""What scenarios are written for."""


class _Awaiting:
    """Has the verbs of an ``AsyncClient`` as if they were those of a ``Client``."""

    def __init__(self, client: AsyncClient, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._client, name)
        if not asyncio.iscoroutinefunction(verb):
            return verb

        def call(*arguments: Any, **keywords: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(verb(*arguments, **keywords), self._loop).result(30)

        return call


@contextmanager
def threaded(url: str, options: dict[str, Any]) -> Iterator[Caller]:
    """A ``Client``."""
    with Client(url, **options) as client:
        yield client


@contextmanager
def awaited(url: str, options: dict[str, Any]) -> Iterator[Caller]:
    """An ``AsyncClient``."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def connect() -> AsyncClient:
        return AsyncClient(url, **options)

    client = asyncio.run_coroutine_threadsafe(connect(), loop).result(10)
    try:
        yield cast("Caller", _Awaiting(client, loop))
    finally:
        asyncio.run_coroutine_threadsafe(client.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


CLIENTS: dict[str, Callable[[str, dict[str, Any]], Any]] = {"Client": threaded, "AsyncClient": awaited}
