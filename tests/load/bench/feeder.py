"""The other end of a socket, in a process of its own: it sends as many bytes as it is asked for."""

import multiprocessing
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

REQUEST = struct.Struct("<QQ")
"""How many bytes to send, and in pieces of how many."""
_BATCH_BYTES = 1 << 20


@contextmanager
def feeding(family: socket.AddressFamily, address: str | tuple[str, int]) -> Iterator[socket.socket]:
    """A connection to a process that answers each ``REQUEST`` with that many bytes."""
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen()
        process = multiprocessing.get_context("spawn").Process(target=_feed, args=(listener,), daemon=True)
        process.start()
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.connect(listener.getsockname())
            yield sock
        process.join(10)
        process.close()


def receive(sock: socket.socket, buffer: memoryview, piece_bytes: int) -> int:
    """Ask for a buffer's worth of bytes and take them into it; returns how many those are."""
    sock.sendall(REQUEST.pack(len(buffer), piece_bytes))
    filled = 0
    while filled < len(buffer):
        filled += sock.recv_into(buffer[filled:])
    return filled


def _feed(listener: socket.socket) -> None:
    sock, _ = listener.accept()
    source = memoryview(os.urandom(64 << 20))
    with sock:
        while len(request := sock.recv(REQUEST.size, socket.MSG_WAITALL)) == REQUEST.size:
            total, piece = REQUEST.unpack(request)
            pieces = [source[start : start + piece] for start in range(0, min(total, len(source) - piece), piece)]
            _send(sock, pieces, total)


def _send(sock: socket.socket, pieces: list[memoryview], total: int) -> None:
    """Send the pieces, over again where there are too few, about 1 MB a call."""
    per_call = max(1, _BATCH_BYTES // len(pieces[0]))
    sent = at = 0
    while sent < total:
        batch = pieces[at : at + per_call]
        at = at + per_call if at + per_call < len(pieces) else 0
        left = total - sent
        size = sum(map(len, batch))
        if size > left:
            batch = [memoryview(b"".join(batch))[:left]]
            size = left
        done = sock.sendmsg(batch)
        if done < size:
            sock.sendall(memoryview(b"".join(batch))[done:])
        sent += size
