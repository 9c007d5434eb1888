"""The HTTP transport for asyncio: the same steps as for threads, waited for on the event loop."""

import asyncio
from collections import deque
from typing import TypeVar

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import DeadlineError
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
        self._places = Places(options.max_connections)

    async def call(self, request: Request[T], deadline: Deadline) -> T:
        """See :meth:`AsyncTransport.call <kvshelf_client.transport.AsyncTransport.call>`."""
        if not await self._places.take(deadline.remaining_seconds):
            raise DeadlineError("all connections were in use until the time was up")
        try:
            return await run_async(self._exchanges.call(request, deadline), wait_async)
        finally:
            self._places.give_back()

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


class Places:
    """So many may be in at a time; the others wait in line."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._line: deque[asyncio.Future[bool]] = deque()

    async def take(self, seconds: float) -> bool:
        """Take a place, or wait for one; False when none came free in time."""
        if self._free:
            self._free -= 1
            return True
        loop = asyncio.get_running_loop()
        place: asyncio.Future[bool] = loop.create_future()
        self._line.append(place)
        timer = loop.call_later(seconds, _settle, place, False)
        try:
            return await place
        except asyncio.CancelledError:
            if not place.cancelled() and place.result():  # It came free, and its taker was cancelled, at the same time.
                self.give_back()
            raise
        finally:
            timer.cancel()

    def give_back(self) -> None:
        """Hand a place on to whoever has waited longest."""
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(True)
                return
        self._free += 1
