"""A request and its answer over a kept-alive connection, in steps."""

import os
from collections import deque
from itertools import chain
from typing import TypeVar, cast

from kvshelf_client.deadline import Deadline
from kvshelf_client.documents import Document
from kvshelf_client.errors import NO_ROUTE, AnswerError, FrameError, ServiceError, UnreachableError
from kvshelf_client.frames import HEADER_BYTES, unpack_header
from kvshelf_client.http.channel import Channel
from kvshelf_client.http.codec import HttpRequest, encode
from kvshelf_client.http.connecting import connect, parse_address
from kvshelf_client.http.head import Head
from kvshelf_client.http.steps import Steps
from kvshelf_client.request_ids import HEADER
from kvshelf_client.requests import Fetch, Request
from kvshelf_client.tracing import trace_fields
from kvshelf_client.transport import Sink, TransportOptions

T = TypeVar("T")

MAX_DOCUMENT_BYTES = 64 << 20
"""The longest answer that is no frames: a store of as many records as a service takes stays well below it."""
MAX_PROBLEM_BYTES = 1 << 20
_NOT_FOUND = 404


class Exchanges:
    """Requests to one service, and its idle connections. Threads may share it.

    Args:
        url: ``http://host:port``, with a path in front of the API if there is one; or ``https``.
        options: see there. The number of connections is bounded by how many calls there are at a time.

    Raises:
        ValueError: the address is none, or the token cannot be sent.
        OSError: a TLS file is none.
    """

    def __init__(self, url: str, options: TransportOptions) -> None:
        self._address = parse_address(url)
        self._options = options
        self._idle: deque[Channel] = deque()
        self._owner = os.getpid()
        self._is_closed = False
        self._fixed_fields = f"host: {self._address.authority}\r\n"
        if options.token is not None:
            if not options.token.isascii() or not options.token.isprintable() or " " in options.token:
                raise ValueError("a token is of printable ASCII characters without spaces")
            self._fixed_fields += f"authorization: Bearer {options.token}\r\n"
        self._tls_context = None
        if self._address.scheme == "https":
            from kvshelf_client.http import tls

            self._tls_context = tls.context_of(options.tls)

    def call(self, request: Request[T], deadline: Deadline) -> Steps[T]:
        """Do one request; see :meth:`Transport.call <kvshelf_client.transport.Transport.call>`."""
        sent = encode(request)
        channel = self._take_idle() or (yield from self._open(deadline))
        try:
            channel.begin(deadline)
            asked = self._head_of(sent, request.call_id)
            if sent.body_bytes or (asked := channel.send_now(asked)):
                yield from channel.send(chain([asked], sent.body))
            if isinstance(request, Fetch):
                request.sink.expect()
            head = yield from channel.read_head()
            if head.status >= 300:
                raise (yield from _read_problem(channel, head))
            if isinstance(request, Fetch):
                yield from _read_frames(channel, head, request.sink, self._options.max_payload_bytes)
                answer = None
            else:
                body = yield from _read_body(channel, head, MAX_DOCUMENT_BYTES)
                answer = sent.decode(head.status, body) if sent.decode else None
            channel.is_clean = not head.is_last
            return cast("T", answer)
        finally:
            self._put_back(channel)

    def close(self) -> None:
        """Close the idle connections, and those in use as they come back."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def _head_of(self, sent: HttpRequest, call_id: str) -> bytes:
        head = f"{sent.method} {self._address.prefix}{sent.target} HTTP/1.1\r\n{self._fixed_fields}"
        head += f"{HEADER}: {call_id}\r\n"
        for name, value in sent.headers.items():
            head += f"{name}: {value}\r\n"
        for name, value in trace_fields():
            head += f"{name}: {value}\r\n"
        if sent.method != "GET":
            head += f"content-length: {sent.body_bytes}\r\n"
        return f"{head}\r\n".encode()

    def _take_idle(self) -> Channel | None:
        if self._is_closed:
            raise UnreachableError("the client is closed")
        if self._owner != os.getpid():  # The parent goes on using those of before the fork.
            self._owner = os.getpid()
            self._idle = deque()
        while self._idle:
            try:
                channel = self._idle.pop()
            except IndexError:  # Another thread was faster.
                break
            if channel.is_quiet():
                return channel
            channel.close()
        return None

    def _open(self, deadline: Deadline) -> Steps[Channel]:
        within = deadline.within(self._options.connect_seconds)
        sock = yield from connect(self._address, within)
        if self._tls_context is None:
            return Channel(sock, self._address.where, self._options.read_seconds)
        from kvshelf_client.http import tls

        secure = yield from tls.shake_hands(sock, self._tls_context, self._address, within)
        return Channel(secure, self._address.where, self._options.read_seconds, short_reads_drain=False)

    def _put_back(self, channel: Channel) -> None:
        if channel.is_clean and not self._is_closed:
            self._idle.append(channel)
        else:
            channel.close()


def _read_body(channel: Channel, head: Head, most_bytes: int) -> Steps[bytes]:
    if head.length_bytes is None or head.length_bytes > most_bytes:
        raise AnswerError(f"an answer of {head.length_bytes} bytes; at most {most_bytes} are taken")
    body = bytearray(head.length_bytes)
    yield from channel.fill(memoryview(body))
    return bytes(body)


def _read_problem(channel: Channel, head: Head) -> Steps[ServiceError]:
    """The error an answer stands for. Something other than the service may have sent it, in any form."""
    try:
        body = yield from _read_body(channel, head, MAX_PROBLEM_BYTES)
    except AnswerError:
        return _foreign_error(head)
    channel.is_clean = not head.is_last
    try:
        return ServiceError(head.status, Document.parse(body).fields, head.retry_after_seconds)
    except AnswerError:
        return _foreign_error(head)


def _foreign_error(head: Head) -> ServiceError:
    """An error that is no problem document is not of this API: its 404 says nothing of a lease or a namespace."""
    problem: dict[str, object] = {"reason": NO_ROUTE} if head.status == _NOT_FOUND else {}
    return ServiceError(head.status, problem, head.retry_after_seconds)


def _read_frames(channel: Channel, head: Head, sink: Sink, max_payload_bytes: int) -> Steps[None]:
    """Read a body of frames, each payload straight to where the sink wants it."""
    left = head.length_bytes
    if left is None:
        raise AnswerError("frames of unknown length")
    head_bytes = memoryview(bytearray(HEADER_BYTES))
    while left:
        if left < HEADER_BYTES:
            raise FrameError(f"{left} bytes behind the last frame")
        there = channel.take_ahead(head_bytes)  # Mostly all of it: it came with the payload before.
        if there < HEADER_BYTES:
            yield from channel.fill(head_bytes[there:])
        header = unpack_header(head_bytes)
        left -= HEADER_BYTES + header.length_bytes
        if left < 0 or header.length_bytes > max_payload_bytes:
            raise FrameError(f"a payload of {header.length_bytes} bytes, more than there is room for")
        yield from channel.fill(sink.begin(header))
        sink.end()
