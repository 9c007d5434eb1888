"""HTTP/1.1 with bounds: on the head of a request, on connections, and on how long a client may leave things where they
are. What is no HTTP gets a problem document too.
"""

import asyncio
from typing import Any

import httptools
import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.faces.admission import MIN_BYTES_PER_SECOND, Admission
from service.faces.problems import RETRY_SECONDS, ProblemError, problem_document
from service.request_ids import request_id_of
from service.rest.ends import Inlet, Outlet
from service.rest.problems import MEDIA_TYPE
from service.rest.request_ids import HEADER_NAME, sent_id
from service.rest.wire import EXTENSION, Wire, offer

MAX_HEAD_BYTES = 64 << 10
"""Request line and header fields together. The parser keeps a head in memory until it is whole."""
MAX_UNWANTED_BYTES = 64 << 20
"""What is still read of a body after its request was answered, so that the client gets to the answer."""
_PHRASES = {
    400: b"Bad Request",
    408: b"Request Timeout",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}
_REASONS = {400: "malformed", 408: "slow", 429: "connections", 431: "malformed", 503: "connections"}


class BoundedHttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with bounds. One instance a connection.

    Once every ``limits.stall_seconds`` it looks at what the client owes: the rest of a head, more of a body, or to read
    what was sent. Where that is what it owed the last time, and nothing came of it since, the client is cut off.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        context = config.app.state.context  # type: ignore[union-attr]  # The app is always our own.
        self._admission: Admission = context.admission
        self._stall_seconds: float = context.parts.settings.limits.stall_seconds
        self._source: str | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._owed: tuple[object, ...] | None = None
        self._head_bytes = self._unwanted_bytes = 0
        self.body_bytes = 0
        """How much of the current request's body went through the parser."""
        self._wire: Wire | None = None
        self.taken: Outlet | Inlet | None = None
        """What a request has taken of the connection, see :mod:`service.rest.wire`."""
        self._messages = self._times_resumed = 0
        self._in_head = True
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected. One that then says nothing is treated as one that is idle between requests."""
        super().connection_made(transport)
        source = self.client[0] if self.client else ""
        status = self._admission.connections.lacks(source)
        if status is not None:
            self._refuse(status, f"too many connections are open; come again in {RETRY_SECONDS} s")
        else:
            self._source = source
            self._admission.connections.take(source)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, by whomever it was ended."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._watch is not None:
            self._watch.cancel()
        if self._source is not None:
            self._admission.connections.give(self._source)

    def data_received(self, data: bytes) -> None:
        """Take bytes off the socket. Those of a head that is not whole yet are counted."""
        if self._refused:
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431, f"the request's head is over the limit of {MAX_HEAD_BYTES} bytes")

    def on_message_begin(self) -> None:
        """A new head begins."""
        self._in_head, self._head_bytes = True, 1  # Begun, however it came.
        self.body_bytes = self._unwanted_bytes = 0
        self._messages += 1
        super().on_message_begin()
        self._wire = offer(self)
        self.scope["extensions"] = {EXTENSION: self._wire} if self._wire else {}  # type: ignore[dict-item]

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field. Those behind a chunked body are counted and dropped: nobody asks for them."""
        if self._in_head:
            super().on_header(name, value)
            return
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > MAX_HEAD_BYTES and not self._refused:
            self._refuse(431, f"the request's trailer is over the limit of {MAX_HEAD_BYTES} bytes")

    def on_headers_complete(self) -> None:
        """The head is whole: only now is it known how much of the bytes was head."""
        self._in_head, self._head_bytes = False, 0
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > MAX_HEAD_BYTES:
            self._refuse(431, f"the request's head is over the limit of {MAX_HEAD_BYTES} bytes")
            return
        super().on_headers_complete()
        if self._wire is not None:
            self._wire.begin(self.cycle)

    def on_body(self, body: bytes) -> None:
        """A part of the body; nobody wants that of a refused request, and not without end that of an answered one."""
        if self._refused:
            return
        self.body_bytes += len(body)
        if self.cycle.response_complete:
            self._unwanted_bytes += len(body)
            if self._unwanted_bytes > MAX_UNWANTED_BYTES:
                self._refused = True
                self.transport.close()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole; the next one begins with a head."""
        self._in_head, self._head_bytes = True, 0
        if not self._refused:
            super().on_message_complete()

    def shutdown(self) -> None:
        """The service stops: an idle connection is closed, any other when its answer is out.

        Over TLS a close waits for the peer's, and an idle peer is not listening: there the connection is just cut.
        """
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self.transport.get_extra_info("ssl_object") and not self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().shutdown()

    def resume_writing(self) -> None:
        """The client has read most of what waited for it."""
        self._times_resumed += 1
        super().resume_writing()

    def end_of_body(self) -> None:
        """The rest of the body was read past the parser, which so never sees its end: the next head gets a new one."""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._in_head, self._head_bytes = True, 0
        self.cycle.more_body = False
        self.cycle.message_event.set()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the parser has nothing to say that helps.
        """What cannot be parsed is answered, and the connection closed."""
        if not self._refused:
            self._refuse(400, "what arrived is no HTTP/1.1 request")

    def _look(self) -> None:
        """See whether the client does what it owes, and look again after the time it has for it."""
        owed = self._owes()
        if owed is not None and owed == self._owed:
            self._cut_off()
        self._owed = owed
        self._watch = self.loop.call_later(self._stall_seconds, self._look)

    def _owes(self) -> tuple[object, ...] | None:
        """What the client has to do, with a number that changes as it does it; None while it owes nothing."""
        least_bytes = int(MIN_BYTES_PER_SECOND * self._stall_seconds)
        if self.taken is not None:
            moved_bytes = self.taken.awaited_bytes
            return None if moved_bytes is None else ("taken", self._messages, moved_bytes // least_bytes)
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes:
            return "answer", self._times_resumed, unread_bytes // least_bytes
        if self._in_head:
            return ("head", self._messages) if self._head_bytes else None
        # While the service itself does not read, the client owes nothing.
        return None if self.flow.read_paused else ("body", self._messages, self.body_bytes // least_bytes)

    def _cut_off(self) -> None:
        if self.taken is not None:
            self.taken.give_up()
        is_owed_an_answer = self.cycle is not None and not self.cycle.response_complete
        if self._refused or self._is_answering or (self._in_head and is_owed_an_answer):
            self._admission.metrics.refused.labels("slow").inc()
            self.transport.abort()
        elif self._in_head or (is_owed_an_answer and not self.cycle.response_started):
            part = "head" if self._in_head else "body"
            self._refuse(408, f"the request's {part} took longer than {self._stall_seconds:g} s to come any further")
        else:
            self.transport.close()

    @property
    def _is_answering(self) -> bool:
        """Whether an answer waits for the client to read more of it."""
        return bool(self.transport.get_write_buffer_size()) or isinstance(self.taken, Outlet)

    def _refuse(self, status: int, detail: str) -> None:
        self._refused = True
        self._admission.metrics.refused.labels(_REASONS[status]).inc()
        request_id = request_id_of(sent_id(self.headers or ()))
        body = msgspec.json.encode(problem_document(ProblemError(status, detail)) | {"request_id": request_id})
        retry = b"retry-after: %d\r\n" % RETRY_SECONDS if status in (429, 503) else b""
        head = b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n%b%b: %b\r\nconnection: close\r\n\r\n"
        named = HEADER_NAME, request_id.encode()
        self.transport.write(head % (status, _PHRASES[status], MEDIA_TYPE.encode(), len(body), retry, *named) + body)
        self.transport.close()
