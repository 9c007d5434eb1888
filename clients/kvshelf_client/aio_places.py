"""How many calls of a client for asyncio are under way at a time."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kvshelf_client.deadline import Deadline
from kvshelf_client.places import no_place


class AsyncPlaces:
    """So many tasks may be in at a time; the others wait in line, and whoever has waited longest is next."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._line: deque[asyncio.Future[bool]] = deque()

    @asynccontextmanager
    async def taken(self, deadline: Deadline) -> AsyncIterator[None]:
        """Have a place. Raises DeadlineError when none came free in time."""
        if not await self._take(deadline.remaining_seconds):
            raise no_place()
        try:
            yield
        finally:
            self._give_back()

    async def _take(self, seconds: float) -> bool:
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
                self._give_back()
            raise
        finally:
            timer.cancel()

    def _give_back(self) -> None:
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(True)
                return
        self._free += 1


def _settle(future: "asyncio.Future[bool]", value: bool) -> None:
    if not future.done():
        future.set_result(value)
