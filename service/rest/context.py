"""What every route works with: the service's parts and the threads in which blocking work is done."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, ParamSpec, TypeVar

from fastapi import Depends, Request

from service.shelf.parts import Parts
from storage.patience import Patience, begin_work, patience_in_force, waiting_with

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
        """Call a blocking function in a worker thread. It waits for a pool in trouble no longer than a request may."""
        patience = patience_in_force() or Patience(self.parts.settings.pool.request_seconds)

        def work() -> T:
            with waiting_with(patience):
                return call(*arguments, **keywords)

        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Wait for the work under way and let the threads go."""
        self._threads.shutdown(wait=True)


async def context_of(request: Request) -> Context:
    """The app's context, as a dependency. It awaits nothing, but one that is no coroutine would cost a thread.

    The request's patience begins here, for all it does in worker threads.
    """
    context: Context = request.app.state.context
    begin_work(Patience(context.parts.settings.pool.request_seconds))
    return context


InContext = Annotated[Context, Depends(context_of)]
