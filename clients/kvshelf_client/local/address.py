"""Where the local socket is, and who is at its other end."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CREDENTIALS = struct.Struct("iII")


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """The path by another name that fits into a socket's address, which holds 107 bytes, while this lasts.

    Raises OSError when its directory cannot be opened.
    """
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def connect(path: Path) -> socket.socket:
    """A socket connected to whoever listens at ``path``. Never waits. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        with short_path(path) as name:
            sock.connect(name)
    except BaseException:  # whatever it was, nobody else closes it
        sock.close()
        raise
    return sock


def peer_user(sock: socket.socket) -> int:
    """The user id of the process at the other end, as the kernel knows it."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])
