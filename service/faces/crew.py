"""Threads for an event loop: blocking calls are handed to them, and their results come back.

A request is handed over twice or more, and that is most of what a small one takes. The standard library's executor
makes a future with a lock and a condition for every call, and tells it apart from the loop's; here a call costs half.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _Job(NamedTuple):
    """``call`` is made in ``context``, and what comes of it goes to ``result``."""

    call: Callable[[], Any]
    context: contextvars.Context
    result: asyncio.Future[Any]


class ClosedError(RuntimeError):
    """The crew takes no more calls."""


class Crew:
    """At most ``count`` threads, each started when no other one is free. Calls are begun in the order they came.

    Args:
        count: of threads, one at least.
        name: what they are called, with a number behind.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._jobs = SimpleQueue[_Job | None]()
        self._free = SimpleQueue[None]()
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Have ``call`` made in a thread, with what belongs to the request, such as its id. To be called on the loop.

        A call that nobody waits for any more when its turn comes is not made.

        Raises:
            ClosedError: see there.
        """
        if self._is_closed:
            raise ClosedError("the service has stopped")
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(call, contextvars.copy_context(), result))
        self._see_to_a_free_thread()
        return result

    @property
    def is_behind(self) -> bool:
        """Whether calls wait for a thread."""
        return not self._jobs.empty()

    def close(self) -> None:
        """Take no more calls, wait for those there are, and let the threads go."""
        self._is_closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _see_to_a_free_thread(self) -> None:
        try:
            self._free.get_nowait()
        except Empty:
            if len(self._threads) < self._count:
                thread = threading.Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
                thread.start()
                self._threads.append(thread)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            _do(job)
            del job  # It, and what it has in memory, would live until the next one comes.
            self._free.put(None)


def _do(job: _Job) -> None:
    """Make a call, and tell of it.

    The frames of an error lead here, and from here to whoever is told of it: what is named when that is done would wait
    for the collector, with all that the call has in memory.
    """
    call, context, result = job
    if result.cancelled():
        return
    try:
        outcome = context.run(call)
    except StopIteration as error:  # A future takes all but this one.
        _tell(result, result.set_exception, RuntimeError(f"a call ended with {error!r}"))
    except BaseException as error:  # noqa: BLE001 - Whatever it is, whoever waits is told.
        _tell(result, result.set_exception, error)
    else:
        _tell(result, result.set_result, outcome)
        del outcome
    del job, call, context, result


def _tell(result: asyncio.Future[Any], settle: Callable[[Any], None], what: object) -> None:
    try:
        result.get_loop().call_soon_threadsafe(_settle, result, settle, what)
    except RuntimeError:  # The loop was closed: nobody waits.
        return


def _settle(result: asyncio.Future[Any], settle: Callable[[Any], None], what: object) -> None:
    if not result.done():
        settle(what)
