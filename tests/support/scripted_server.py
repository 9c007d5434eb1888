"""A fake HTTP service that misbehaves by script: it answers request after request with given bytes."""

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO

_LINGER_SECONDS = 0.2
_TIMEOUT_SECONDS = 20.0


@dataclass
class Reply:
    """The bytes of one answer, head and body as they are; then the connection is closed, or kept.

    They come ``delay_seconds`` after the request.
    """

    raw: bytes
    close: bool = False
    delay_seconds: float = 0.0


@dataclass
class Seen:
    """One request as it arrived. ``connection`` counts from 0."""

    connection: int
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


def answer(body: bytes, status: str = "200 OK", content_type: str = "application/json", extra: str = "") -> bytes:
    """A whole answer with its content-length."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


class ScriptedServer:
    """Answers on a free port of 127.0.0.1 until the script is over; then it closes whatever connects."""

    def __init__(self, script: Sequence[Reply]) -> None:
        self._script = list(script)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_TIMEOUT_SECONDS)
        self._thread = threading.Thread(target=self._serve)
        self.seen: list[Seen] = []
        self.closed_connections = threading.Semaphore(0)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "ScriptedServer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(_TIMEOUT_SECONDS)

    def _serve(self) -> None:
        connections = 0
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock, sock.makefile("rb") as stream:
                sock.settimeout(_TIMEOUT_SECONDS)
                with contextlib.suppress(OSError):
                    self._serve_connection(connections, sock, stream)
            self.closed_connections.release()
            connections += 1

    def _serve_connection(self, number: int, sock: socket.socket, stream: BinaryIO) -> None:
        while self._script:
            reply = self._script[0]
            seen = _read_request(number, stream)
            if seen is None:
                return
            if seen.target.endswith("/v1/local"):  # Clients ask for it by themselves, and there is none.
                sock.sendall(answer(b"{}", "404 Not Found"))
                continue
            self.seen.append(seen)
            self._script.pop(0)
            time.sleep(reply.delay_seconds)
            sock.sendall(reply.raw)
            if reply.close:
                # Closed at once, the kernel may reset the connection and drop what the client has not read yet.
                sock.shutdown(socket.SHUT_WR)
                sock.settimeout(_LINGER_SECONDS)
                while sock.recv(4096):
                    pass
                return


def _read_request(connection: int, stream: BinaryIO) -> Seen | None:
    first = stream.readline().decode()
    if not first:
        return None
    method, target, _ = first.split(" ", 2)
    headers: dict[str, str] = {}
    while line := stream.readline().decode().strip():
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = _read_body(stream, headers)
    return Seen(connection, method, target, headers, body)


def _read_body(stream: BinaryIO, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return stream.read(int(headers.get("content-length", "0")))
    body = b""
    while size := int(stream.readline(), 16):
        body += stream.read(size)
        stream.readline()
    stream.readline()
    return body
