"""What every route works with: the service's parts and the threads in which blocking work is done."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, ParamSpec, TypeVar

from fastapi import Depends, Request

from service.shelf.parts import Parts

P = ParamSpec("P")
T = TypeVar("T")


class Context:
    """The parts of the service, and a bounded pool of threads: nothing that can block runs on the event loop.

    ``is_draining`` is set when a stop was asked for; ``under_way`` counts the requests that a stop waits for.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._threads = ThreadPoolExecutor(parts.settings.server.workers, thread_name_prefix="kvshelf-worker")
        self.is_draining = False
        self.under_way = 0

    async def run(self, call: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Call a blocking function in a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(*arguments, **keywords))

    def close(self) -> None:
        """Wait for the work under way and let the threads go."""
        self._threads.shutdown(wait=True)


async def context_of(request: Request) -> Context:
    """The app's context, as a dependency. It awaits nothing, but one that is no coroutine would cost a thread."""
    context: Context = request.app.state.context
    return context


InContext = Annotated[Context, Depends(context_of)]
