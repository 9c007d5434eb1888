"""The connection under a request: bulk bytes go straight from memory to the socket, by a thread, and back.

The HTTP server hands every buffer through the event loop, which holds up all other requests while the kernel copies it.
So a route that moves bulk takes the connection for as long as its body lasts: the head is made by the server, and sent
with the body by threads, as much as the socket takes at a time. Whoever waits for a slow peer waits on the event loop,
with no thread and, after a while, no memory. Where the connection cannot be taken (TLS), bodies go through the server.
"""

import asyncio
import os
import weakref
from collections.abc import Callable
from itertools import chain, repeat
from typing import TYPE_CHECKING

from starlette.types import Message, Scope, Send

from service.rest.ends import Inlet, Outlet

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from service.rest.protocol import BoundedHttpProtocol

EXTENSION = "kvshelf.wire"
_POLL_SECONDS = 0.005


class Wire:
    """The connection of one request. Offered by the protocol in the request's scope; see :func:`wire_of`.

    Args:
        protocol: the server's side of the connection.
    """

    def __init__(self, protocol: "BoundedHttpProtocol") -> None:
        self._protocol = protocol
        self._cycle: Callable[[], RequestResponseCycle | None] = lambda: None

    def begin(self, cycle: "RequestResponseCycle") -> None:
        """The head of the request is whole, and this the server's state of it.

        That has the scope, and the scope has this: with two references that count, all of it would stay in memory until
        the collector comes.
        """
        self._cycle = weakref.ref(cycle)

    async def outlet(self) -> Outlet:
        """Take the connection to write an answer to it, until it is said what became of that: :meth:`finish`,
        :meth:`leave` or :meth:`abort`. What the server wrote goes first.

        Raises:
            OSError: the peer is gone.
        """
        transport = self._protocol.transport
        pauses = chain((0.0, 0.0), repeat(_POLL_SECONDS))
        while transport.get_write_buffer_size() and not transport.is_closing():  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(next(pauses))
        outlet = self._protocol.taken = Outlet(self._descriptor())
        return outlet

    def inlet(self, length_bytes: int) -> Inlet | None:
        """Take the connection to read the rest of a body from it, until :meth:`give_back`; None where it can't be had.

        When not all of the body is read, the connection must be closed.
        """
        cycle, protocol = self._cycle(), self._protocol
        if cycle is None or not cycle.more_body or cycle.waiting_for_100_continue or cycle.disconnected:
            return None
        protocol.flow.pause_reading()
        arrived, cycle.body = bytes(cycle.body), bytearray()
        inlet = protocol.taken = Inlet(self._descriptor(), arrived, length_bytes - protocol.body_bytes)
        return inlet

    def give_back(self, inlet: Inlet) -> None:
        """Nothing more is read from it: the connection is the server's again."""
        self._protocol.taken = None
        if not inlet.left_bytes:
            self._protocol.end_of_body()

    def head(self, send: Send, start: Message) -> bytes:
        """The head of an answer, as the server and all that is around the route make it, for whoever sends the body.

        Unlike all else here it may be called in a thread, while the route waits for that.

        Raises:
            OSError: the peer is gone.
        """
        cycle = self._cycle()
        if cycle is None or cycle.disconnected:
            raise ConnectionAbortedError("the client is gone")
        transport, head = cycle.transport, _Head()
        cycle.transport = head  # type: ignore[assignment]
        try:
            send(start).send(None)  # type: ignore[attr-defined]  # Nothing waits where nothing is in the way.
        except StopIteration:
            if head.written:
                return head.written
        finally:
            cycle.transport = transport
        raise ConnectionAbortedError("the connection does not take the head of an answer")

    def leave(self) -> None:
        """Nothing was sent: the connection is the server's again, to answer."""
        self._protocol.taken = None

    async def finish(self, send: Send) -> None:
        """Say that the whole body was written; the connection is the server's again."""
        self._protocol.taken = None
        cycle = self._cycle()
        if cycle is not None:
            cycle.expected_content_length = 0
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def abort(self) -> None:
        """Close the connection: the body cannot be completed."""
        self._protocol.taken = None
        self._protocol.transport.abort()

    def _descriptor(self) -> int:
        return os.dup(self._protocol.transport.get_extra_info("socket").fileno())


class _Head:
    """Stands for a connection to which a head is written."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        """See :meth:`asyncio.WriteTransport.write`."""
        self.written += data


def offer(protocol: "BoundedHttpProtocol") -> Wire | None:
    """The connection of the request that begins; None where the bytes on the socket are not the body's (TLS)."""
    return Wire(protocol) if protocol.transport.get_extra_info("sslcontext") is None else None


def wire_of(scope: Scope) -> Wire | None:
    """The connection of a request, if it can be taken."""
    found: Wire | None = scope.get("extensions", {}).get(EXTENSION)
    return found
