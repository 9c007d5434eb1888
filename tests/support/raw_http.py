"""HTTP over a bare socket, for clients that read slowly, in part or not at all."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tests.support.live import Live

SOON = 20.0


@contextmanager
def connected(face: Live, receive_bytes: int = 1 << 16) -> Iterator[socket.socket]:
    """A connection that takes little unless it is read from."""
    address = urlsplit(face.url)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(SOON)
        sock.connect((address.hostname or "", address.port or 0))
        yield sock


def ask_for(planned: dict[str, Any]) -> bytes:
    """The head of a fetch."""
    return f"GET /v1/leases/{planned['lease']['lease_id']}/fetch HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()


def read_answer(sock: socket.socket) -> tuple[bytes, bytes]:
    """One answer with a content-length: its head and its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(1)
    head = data[:-4].lower()
    length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    body = bytearray()
    while len(body) < length:
        chunk = sock.recv(min(1 << 20, length - len(body)))
        assert chunk, f"the answer broke off after {len(body)} of {length} bytes"
        body += chunk
    return head, bytes(body)
