"""Answers of many bytes, read while they are sent: batch by batch, as fast as the client takes them and no faster."""

from collections.abc import Callable
from enum import Enum
from threading import Lock

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.faces.context import Context
from service.rest.ends import Outlet
from service.rest.wire import Wire, wire_of
from service.shelf.fetching import Fetch
from storage.base import Payload
from storage.buffers import behind

SMALL_BUFFER_BYTES = 32 << 10
TURN_BYTES = 8 << 20
"""What is sent for one client before the next one has its turn."""
STALLED_BYTES = 8 << 20
"""What all clients together that take nothing may keep in memory."""


class _Turn(Enum):
    """How a turn ended."""

    MORE = "more"
    BLOCKED = "blocked"
    DONE = "done"


class BulkResponse(Response):
    """The answer to a fetch.

    Args:
        context: has the threads.
        fetch: what is sent.
        headers: beyond the length.
        media_type: of the body.
        on_sent: called when all of it was.
    """

    def __init__(
        self, context: Context, fetch: Fetch, headers: dict[str, str], media_type: str, on_sent: Callable[[], None]
    ) -> None:
        super().__init__(None, 200, {"Content-Length": str(fetch.length_bytes), **headers}, media_type)
        self._context, self._fetch, self._on_sent = context, fetch, on_sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Send the head, then the body: by the connection itself where that can be had."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        wire = wire_of(scope)
        if wire is None:
            await self._send_through_server(send)
        else:
            await self._send_by_wire(wire, send)
        self._on_sent()

    async def _send_through_server(self, send: Send) -> None:
        batches = self._fetch.batches
        while (batch := await self._context.run_bulk(next, batches, None)) is not None:
            for buffer in _joined(batch):
                await send({"type": "http.response.body", "body": buffer, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_by_wire(self, wire: Wire, send: Send) -> None:
        sending: _Sending | None = None
        try:
            sending = _Sending(await wire.outlet(), self._fetch)
            while (turn := await self._context.run_bulk(sending.take_turn)) is not _Turn.DONE:
                if turn is _Turn.BLOCKED:
                    await self._wait(sending)
        except OSError:  # The client is gone.
            wire.abort()
        except BaseException:  # Whatever it was, the body cannot be completed.
            wire.abort()
            raise
        else:
            await wire.finish(send)
        finally:
            if sending is not None:
                sending.close()

    async def _wait(self, sending: "_Sending") -> None:
        """Wait until the client takes more. What it keeps in memory meanwhile is let go of where all keep too much."""
        context = self._context
        if context.stalled_bytes + sending.held_bytes > STALLED_BYTES:
            sending.let_go()
        held = sending.held_bytes
        context.stalled_bytes += held
        try:
            await sending.outlet.writable()
        finally:
            context.stalled_bytes -= held


class _Sending:
    """A fetch on its way out, as far as it has come. One turn at a time.

    Args:
        outlet: where it goes.
        fetch: what is sent.
    """

    def __init__(self, outlet: Outlet, fetch: Fetch) -> None:
        self.outlet = outlet
        self._batches = fetch.batches
        self._left: list[memoryview] = []
        self._sent_bytes = 0
        self._is_let_go = self._is_closed = False
        self._lock = Lock()

    @property
    def held_bytes(self) -> int:
        """What was read and is not sent yet."""
        return sum(map(len, self._left))

    def let_go(self) -> None:
        """Keep nothing in memory: what is left of the batch is read again in the next turn."""
        self._left, self._is_let_go = [], True

    def take_turn(self) -> _Turn:
        """Send what the client takes. Blocks on the disk and, for a moment, on the client. Raises OSError."""
        with self._lock:
            turn = self._send_some()
        if self._is_closed:
            self.outlet.close()
        return turn

    def close(self) -> None:
        """Let go of the connection, or let the turn that is being taken do so."""
        self._is_closed = True
        if self._lock.acquire(blocking=False):
            self.outlet.close()
            self._lock.release()

    def _send_some(self) -> _Turn:
        sent = 0
        while sent < TURN_BYTES:
            if not self._left and not self._read():
                return _Turn.DONE
            done = self.outlet.send(self._left)
            if not done:
                return _Turn.BLOCKED
            sent += done
            self._sent_bytes += done
            self._left = behind(self._left, done)
        return _Turn.MORE

    def _read(self) -> bool:
        """Get the next batch, or the rest of the one that was let go of; False when all was sent."""
        if self._is_let_go:
            self._is_let_go = False
            self._left = behind([memoryview(buffer) for buffer in self._batches.again()], self._sent_bytes)
            return True
        batch = next(self._batches, None)
        self._left, self._sent_bytes = [memoryview(buffer) for buffer in batch or ()], 0
        return batch is not None


def _joined(batch: list[Payload]) -> list[Payload]:
    """Small buffers are joined: one write costs less than many."""
    if sum(map(len, batch)) >= SMALL_BUFFER_BYTES * len(batch):
        return batch
    return [b"".join(batch)]
