"""Answers of many bytes, read while they are sent: batch by batch, as fast as the client takes them and no faster.

A short answer is sent by the thread that opens it, and a snapshot by the thread that reads it, while it comes: every
change of thread is waited for. Whatever the client does not take at once is bulk, and left to the threads for that.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from threading import Lock

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from service.faces.context import Context
from service.rest.ends import PATIENCE_MS, Outlet
from service.rest.wire import Wire, wire_of
from service.shelf.early import OnHead
from service.shelf.fetching import Batches, Fetch
from storage.base import Payload
from storage.buffers import behind

FALLBACK_HEADER = "Kvshelf-Fallback"
SMALL_BUFFER_BYTES = 32 << 10
SHORT_BYTES = 2 << 20
"""Fetches up to this length are sent by the thread that opens them."""
TURN_BYTES = 8 << 20
"""What is sent for one client before the next one has its turn, where one waits."""
STALLED_BYTES = 8 << 20
"""What all clients together that take nothing may keep in memory."""

OpenFetch = Callable[[OnHead | None], Fetch]
"""Opens a fetch. Blocks, and raises whatever keeps it from being opened."""


class _Turn(Enum):
    """How a turn ended."""

    MORE = "more"
    BLOCKED = "blocked"
    DONE = "done"


class BulkResponse(Response):
    """The answer to a fetch. What keeps the fetch from being opened is raised as if the route had.

    Args:
        context: has the threads.
        open_fetch: opens what is sent.
        media_type: of the body.
        on_sent: called when all of it was.
    """

    def __init__(self, context: Context, open_fetch: OpenFetch, media_type: str, on_sent: Callable[[], None]) -> None:
        super().__init__(None, 200, None, media_type)
        self._context, self._open_fetch, self._on_sent = context, open_fetch, on_sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Open the fetch, send the head, then the body: by the connection itself where that can be had."""
        wire = wire_of(scope)
        if wire is None:
            await self._send_through_server(send)
        else:
            await self._send_by_wire(wire, send)
        self._on_sent()

    def _start(self, length_bytes: int, *, fell_back: bool) -> Message:
        self.init_headers({"Content-Length": str(length_bytes), **({FALLBACK_HEADER: "true"} if fell_back else {})})
        return {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}

    async def _send_through_server(self, send: Send) -> None:
        fetch = await self._context.run(self._open_fetch, None)
        await send(self._start(fetch.length_bytes, fell_back=fetch.fell_back))
        while (batch := await self._context.run_bulk(next, fetch.batches, None)) is not None:
            for buffer in _joined(batch):
                await send({"type": "http.response.body", "body": buffer, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_by_wire(self, wire: Wire, send: Send) -> None:
        def head(length_bytes: int, fell_back: bool) -> bytes:
            return wire.head(send, self._start(length_bytes, fell_back=fell_back))

        sending: _Sending | None = None
        try:
            sending = _Sending(await wire.outlet(), head, lambda: self._context.is_bulk_behind)
            turn = await self._context.run(sending.open, self._open_fetch)
            while turn is not _Turn.DONE:
                if turn is _Turn.BLOCKED:
                    await self._wait(sending)
                turn = await self._context.run_bulk(sending.take_turn)
        except BaseException as error:  # Whatever it was, nothing was said yet, or the body cannot be completed.
            if sending is not None and not sending.close():
                wire.leave()
                raise
            wire.abort()
            if not isinstance(error, OSError):  # That is a client that is gone.
                raise
        else:
            sending.close()
            await wire.finish(send)

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
    """An answer on its way out, as far as it has come. One turn at a time.

    Args:
        outlet: where it goes.
        make_head: makes the head of the answer, by the length of the fetch and whether that fell back.
        is_other_due: whether somebody else waits for the thread.
    """

    def __init__(
        self, outlet: Outlet, make_head: Callable[[int, bool], bytes], is_other_due: Callable[[], bool]
    ) -> None:
        self.outlet = outlet
        self._is_other_due = is_other_due
        self._make_head = make_head
        self._batches: Batches
        self._head = b""
        """That of the answer, as long as its first batch is not sent: it goes in front of that."""
        self._left: list[memoryview] = []
        self._sent_bytes = 0
        """How much of the batch is sent, and of the head in front of it."""
        self._failure: Exception | None = None
        self._has_begun = self._has_read = self._is_let_go = self._is_closed = False
        self._lock, self._beginning = Lock(), Lock()

    @property
    def held_bytes(self) -> int:
        """What was read and is not sent yet."""
        return sum(map(len, self._left))

    def let_go(self) -> None:
        """Keep nothing in memory: what is left of the batch is read again in the next turn."""
        self._left, self._is_let_go = [], True

    def open(self, open_fetch: OpenFetch) -> _Turn:
        """Open the fetch, and send what the client takes at once of a short one, and of a snapshot while it is read.

        Raises:
            OSError: the client is gone.
        """
        with self._turn():
            fetch = open_fetch(self._relay)
            if self._failure is not None:
                raise self._failure
            self._begin(fetch.length_bytes, fell_back=fetch.fell_back)
            self._batches = fetch.batches
            turn = self._send_some(0) if fetch.length_bytes <= SHORT_BYTES else _Turn.MORE
            return _Turn.MORE if turn is _Turn.BLOCKED else turn

    def take_turn(self) -> _Turn:
        """Send what the client takes. Blocks on the disk and, for a moment, on the client. Raises OSError."""
        with self._turn():
            return self._send_some(PATIENCE_MS)

    def close(self) -> bool:
        """Let go of the connection, or let the turn that is being taken do so. Whether anything was or will be sent."""
        with self._beginning:
            self._is_closed = True
        if self._lock.acquire(blocking=False):
            self.outlet.close()
            self._lock.release()
        return self._has_begun

    @contextmanager
    def _turn(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        finally:
            if self._is_closed:
                self.outlet.close()

    def _relay(self, length_bytes: int, frame: list[memoryview]) -> None:
        """An :data:`OnHead`: send what the client takes of it at once. Who reads the frame is not told of a failure."""
        if self._failure is not None:
            return
        try:
            self._begin(length_bytes, fell_back=False)
            self._sent_bytes += self.outlet.send(behind([memoryview(self._head), *frame], self._sent_bytes), 0)
        except Exception as error:  # noqa: BLE001 - It is raised as soon as the fetch is open.
            self._failure = error

    def _begin(self, length_bytes: int, *, fell_back: bool) -> None:
        """Have the head of the answer, unless that was sent or nobody waits for it any more."""
        if self._has_begun:
            return
        with self._beginning:
            if self._is_closed:
                raise ConnectionAbortedError("the answer was given up")
            self._has_begun = True
        self._head = self._make_head(length_bytes, fell_back)

    def _send_some(self, patience_ms: int) -> _Turn:
        sent = 0
        while not self._is_closed and (sent < TURN_BYTES or not self._is_other_due()):
            while not self._left:
                if not self._read():
                    return _Turn.DONE
            done = self.outlet.send(self._left, patience_ms)
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
            batch: list[Payload] | None = self._batches.again()
        else:
            if self._has_read:
                self._head, self._sent_bytes = b"", 0
            self._has_read = True
            batch = next(self._batches, None)
        self._left = behind([memoryview(buffer) for buffer in (self._head, *(batch or ()))], self._sent_bytes)
        return batch is not None or bool(self._left)


def _joined(batch: list[Payload]) -> list[Payload]:
    """Small buffers are joined: one write costs less than many."""
    if sum(map(len, batch)) >= SMALL_BUFFER_BYTES * len(batch):
        return batch
    return [b"".join(batch)]
