"""Bodies of many bytes, received by threads straight into the memory they are kept in."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import Lock
from typing import ParamSpec

from fastapi import Request
from starlette.requests import ClientDisconnect

from service.faces.admission import Admitted
from service.faces.context import Context
from service.faces.problems import ProblemError
from service.faces.uploads import Chunks, Intake, Supply
from service.rest.ends import Inlet
from service.rest.wire import wire_of

DISCARD_SECONDS = 5.0
"""How long the rest of a body that is no good is waited for, so that the client can read why."""
MAX_DISCARDED_BYTES = 64 << 20
"""How much of it is read."""
_DISCARD_BYTES = 256 << 10
P = ParamSpec("P")


@asynccontextmanager
async def body_of(context: Context, request: Request) -> AsyncIterator[Supply]:
    """A request's body, from the connection itself where that can be had. What comes is counted as admitted.

    Raises:
        ClientDisconnect: from its ``fill``; the client is gone.
    """
    wire, length = wire_of(request.scope), request.headers.get("content-length", "")
    inlet = wire.inlet(int(length)) if wire is not None and length.isdecimal() else None
    if wire is None or inlet is None:
        yield Chunks(request.stream())
        return
    body = _WireBody(context, request.state.admitted, inlet)
    try:
        yield body
    except ProblemError as problem:
        if not await body.discard_rest():
            problem.headers["Connection"] = "close"
        raise
    finally:
        body.close()
        wire.give_back(inlet)


class _WireBody:
    """A body that is read from the connection.

    Args:
        context: has the threads.
        admitted: counts the bytes that come.
        inlet: what is left of it.
    """

    def __init__(self, context: Context, admitted: Admitted, inlet: Inlet) -> None:
        self._context, self._admitted, self._inlet = context, admitted, inlet
        self._lock = Lock()
        self._is_closed = False

    async def fill(self, intake: Intake) -> bool:
        """See :meth:`Supply.fill`."""
        inlet = self._inlet
        if inlet.arrived:
            await self._admitted.hold(len(inlet.arrived))
            arrived, inlet.arrived = inlet.arrived, b""
            intake.feed(arrived)
        elif inlet.left_bytes:
            room_bytes = await self._admitted.hold_some(min(inlet.left_bytes, intake.batch_bytes))
            # Where that fails, the end of the request gives all of it back.
            received = await self._run(self._receive_into, intake, room_bytes)
            self._admitted.release(room_bytes - received)
            if not received:
                await self._readable()
        return bool(inlet.left_bytes or inlet.arrived)

    async def discard_rest(self) -> bool:
        """Read what nobody wants; False when it does not come in time, or is too much."""
        discarded = 0
        try:
            async with asyncio.timeout(DISCARD_SECONDS):
                while self._inlet.left_bytes and discarded < MAX_DISCARDED_BYTES:
                    received = await self._run(self._receive_for_nobody)
                    discarded += received
                    if not received:
                        await self._readable()
        except (TimeoutError, ClientDisconnect):
            return False
        return not self._inlet.left_bytes

    def close(self) -> None:
        """Let go of the connection, or let the thread that uses it do so."""
        self._is_closed = True
        if self._lock.acquire(blocking=False):
            self._inlet.close()
            self._lock.release()

    async def _readable(self) -> None:
        try:
            await self._inlet.readable()
        except OSError:
            raise ClientDisconnect from None

    async def _run(self, receive: Callable[P, int], *arguments: P.args, **keywords: P.kwargs) -> int:
        """Receive in a thread; returns how many bytes came."""

        def step() -> int:
            """Receive once; where the body was closed meanwhile, let go of the connection."""
            with self._lock:
                received = receive(*arguments, **keywords)
            if self._is_closed:
                self._inlet.close()
            return received

        try:
            return await self._context.run_bulk(step)
        except OSError:
            raise ClientDisconnect from None

    def _receive_into(self, intake: Intake, most_bytes: int) -> int:
        received = 0
        while received < most_bytes and self._inlet.left_bytes and not intake.is_full:
            count = self._inlet.receive(intake.room(), most_bytes - received)
            if not count:
                break
            received += count
            intake.filled(count)
        return received

    def _receive_for_nobody(self) -> int:
        return self._inlet.receive([memoryview(bytearray(_DISCARD_BYTES))], _DISCARD_BYTES)
