"""HTTP/1.1 with bounds: a request's head may take so many bytes, and what is no HTTP gets a problem document too."""

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.rest.problems import MEDIA_TYPE

MAX_HEAD_BYTES = 64 << 10
"""Request line and header fields together. The parser keeps a head in memory until it is whole."""
_PHRASES = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}


class BoundedHttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with a bound on the head. One instance a connection."""

    _head_bytes = 0
    _in_head = True
    _refused = False

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
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

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

    def on_body(self, body: bytes) -> None:
        """A part of the body; nobody wants that of a refused request."""
        if not self._refused:
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

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the parser has nothing to say that helps.
        """What cannot be parsed is answered, and the connection closed."""
        if not self._refused:
            self._refuse(400, "what arrived is no HTTP/1.1 request")

    def _refuse(self, status: int, detail: str) -> None:
        self._refused = True
        phrase = _PHRASES[status]
        problem = {"type": "about:blank", "title": phrase.decode(), "status": status, "detail": detail, "errors": []}
        body = msgspec.json.encode(problem)
        head = b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status, phrase, MEDIA_TYPE.encode(), len(body)) + body)
        self.transport.close()
