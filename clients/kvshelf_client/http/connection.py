"""HTTP/1.1 connections to one service: keep-alive, reuse, one retry on a connection the service had closed."""

import http.client
import socket
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kvshelf_client.documents import Document
from kvshelf_client.errors import AnswerError, ServiceError, UnreachableError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BROKEN = (OSError, http.client.HTTPException)
_MAX_IDLE_CONNECTIONS = 8


class Answer:
    """A response whose body is still to be read. Give it back with :meth:`finish`, on every path."""

    def __init__(
        self, pool: "Connections", connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        self._pool = pool
        self._connection = connection
        self._response = response
        self.status = response.status

    @property
    def length_bytes(self) -> int | None:
        """The bytes of the body that are still to come, or None when the service did not say."""
        return self._response.length

    def read(self) -> bytes:
        """The rest of the body.

        Raises:
            UnreachableError: the connection broke before the body was whole.
        """
        try:
            return self._response.read()
        except _BROKEN as error:
            raise self._pool.unreachable(error) from error

    def read_into(self, buffer: memoryview) -> int:
        """Fill ``buffer`` from the body; returns the bytes that came before the body ended.

        Raises:
            UnreachableError: the connection broke before that.
        """
        filled = 0
        try:
            while filled < len(buffer):
                count = self._response.readinto(buffer[filled:])
                if not count:
                    break
                filled += count
        except _BROKEN as error:
            raise self._pool.unreachable(error) from error
        return filled

    def finish(self) -> None:
        """Let go of the connection: reused when the body was read to its end, closed otherwise."""
        if self._response.length == 0:
            self._response.close()
        if self._response.isclosed() and not self._response.will_close:
            self._pool.give_back(self._connection)
        else:
            self._connection.close()


class Connections:
    """Connections to one service. Safe to use from several threads, each answer from one at a time.

    Args:
        url: ``http://host:port``, with a path in front of the API if there is one; ``https`` works too.
        timeout_seconds: longest wait for one step of a connection: connect, send, receive.
    """

    def __init__(self, url: str, timeout_seconds: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is no service address; it looks like http://127.0.0.1:8710")
        self._https = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._where = f"{parts.scheme}://{parts.netloc}"

    def unreachable(self, error: Exception) -> UnreachableError:
        """The error for a connection in trouble; it names the service and what went wrong."""
        if isinstance(error, TimeoutError):
            return UnreachableError(f"no answer from {self._where} within {self._timeout_seconds:g} s")
        return UnreachableError(f"talking to {self._where} failed: {str(error) or type(error).__name__}")

    def call(
        self, method: str, path: str, parts: Iterable["Buffer"], headers: Mapping[str, str], *, retry: bool
    ) -> Answer:
        """Send a request and wait for the head of its answer.

        ``retry`` says that the request may be sent a second time, on a fresh connection, when a kept one turns out to
        have been closed by the service.

        Raises:
            ServiceError: the answer is an error; its body has been read. ``retried`` is set when it answers a retry.
            UnreachableError: there was no answer.
        """
        try:
            return self._exchange(self._take(), method, path, parts, headers)
        except _StaleConnectionError as error:
            if not retry:
                raise self.unreachable(error.cause) from error
        try:
            return self._exchange(self._fresh(), method, path, parts, headers)
        except ServiceError as error:
            error.retried = True
            raise
        except _StaleConnectionError as error:
            raise self.unreachable(error.cause) from error

    def close(self) -> None:
        """Close every idle connection."""
        while self._idle:
            self._idle.pop().close()

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection for the next call."""
        if len(self._idle) < _MAX_IDLE_CONNECTIONS:
            self._idle.append(connection)
        else:
            connection.close()

    def _fresh(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=self._timeout_seconds)

    def _take(self) -> http.client.HTTPConnection:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._fresh()
            if _is_quiet(connection):
                return connection
            connection.close()

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        parts: Iterable["Buffer"],
        headers: Mapping[str, str],
    ) -> Answer:
        reused = connection.sock is not None
        try:
            connection.putrequest(method, self._prefix + path, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            _send_parts(connection, parts)
            answer = Answer(self, connection, connection.getresponse())
        except _BROKEN as error:
            connection.close()
            if reused and isinstance(error, (ConnectionError, http.client.BadStatusLine)):
                raise _StaleConnectionError(error) from error
            raise self.unreachable(error) from error
        except BaseException:  # Whatever else ended the call, the connection is of no more use.
            connection.close()
            raise
        if answer.status >= 300:
            raise _service_error(answer)
        return answer


class _StaleConnectionError(Exception):
    """A kept connection broke before its answer began."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause
        super().__init__(str(cause))


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection is still open. Between two calls nothing may arrive, the end of the stream neither."""
    sock = connection.sock
    if sock is None:
        return False
    timeout = sock.gettimeout()
    try:
        sock.setblocking(False)
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        sock.settimeout(timeout)
    return False


def _send_parts(connection: http.client.HTTPConnection, parts: Iterable["Buffer"]) -> None:
    """Send a body. When the service hangs up in the middle, its answer may still be there to read: that is no error."""
    try:
        for part in parts:
            connection.send(part)
    except (BrokenPipeError, ConnectionResetError):
        return


@contextmanager
def finishing(answer: Answer) -> Iterator[Answer]:
    """Finish an answer whatever happens."""
    try:
        yield answer
    finally:
        answer.finish()


def _service_error(answer: Answer) -> ServiceError:
    with finishing(answer):
        body = answer.read()
    try:
        return ServiceError(answer.status, Document.parse(body).fields)
    except AnswerError:
        return ServiceError(answer.status, {})
