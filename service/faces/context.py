"""What every face works with: the service's parts and the threads in which blocking work is done."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from service.faces.admission import Admission
from service.faces.crew import Crew
from service.local.server import LocalServer
from service.overview import History
from service.shelf.parts import Parts
from storage.patience import Patience, begin_work, patience_in_force, waiting_with

P = ParamSpec("P")
T = TypeVar("T")

BULK_THREADS = 8
"""Threads that move bulk: more would only wait for the same cores, sockets and disk."""


class Context:
    """The parts of the service, and a bounded pool of threads: nothing that can block runs on the event loop.

    ``local`` is the local face, if there is one.
    ``is_draining`` is set when a stop was asked for; ``under_way`` counts the requests of all faces that a stop waits
    for, ``admission`` bounds them. ``history`` is what the page for people shows; the upkeep takes its samples.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.local: LocalServer | None = None
        self._workers = Crew(parts.settings.server.workers, "kvshelf-worker")
        self.is_draining = False
        self.under_way = 0
        self.history = History(parts)
        self.admission = Admission(parts.settings.limits, parts.metrics)
        self._movers = Crew(BULK_THREADS, "kvshelf-bulk")
        self.stores_under_way = 0
        """Of all faces: they share what may be in memory on its way in."""
        self.stalled_bytes = 0
        """What is kept in memory for clients that do not take it at the moment."""

    def begin_request(self) -> None:
        """The patience of this task's request begins here, for all it does in worker threads."""
        begin_work(Patience(self.parts.settings.pool.request_seconds))

    async def run(self, call: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Call a blocking function in a worker thread. It waits for a pool in trouble no longer than a request may."""
        patience = patience_in_force() or Patience(self.parts.settings.pool.request_seconds)

        def work() -> T:
            with waiting_with(patience):
                return call(*arguments, **keywords)

        return await self._workers.run(work)

    async def run_bulk(self, call: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Call a function that moves bulk in a thread of its own kind, so that it keeps no small request waiting."""
        return await self._movers.run(lambda: call(*arguments, **keywords))

    @property
    def is_bulk_behind(self) -> bool:
        """Whether somebody waits for a thread that moves bulk."""
        return self._movers.is_behind

    def begin(self, call: Callable[P, object], *arguments: P.args, **keywords: P.kwargs) -> None:
        """Have a blocking function called in a worker thread; nobody waits for its result, or hears of its error."""
        self._workers.run(lambda: call(*arguments, **keywords)).add_done_callback(_let_go)

    def close(self) -> None:
        """Wait for the work under way and let the threads go."""
        self._workers.close()
        self._movers.close()


def _let_go(result: asyncio.Future[object]) -> None:
    """Have looked at an error, which asyncio would otherwise report as forgotten."""
    if not result.cancelled():
        result.exception()
