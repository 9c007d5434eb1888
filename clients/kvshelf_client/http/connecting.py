"""Make a connection: the name, the addresses it stands for, the hand-shake."""

import errno
import os
import socket
import threading
from typing import NamedTuple
from urllib.parse import urlsplit

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import DeadlineError, UnreachableError
from kvshelf_client.http.steps import Steps, Wait

_PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """Where a service is. ``prefix`` is the path in front of the API, often empty."""

    scheme: str
    host: str
    port: int
    authority: str
    prefix: str

    @property
    def where(self) -> str:
        """For errors."""
        return f"{self.scheme}://{self.authority}"


def parse_address(url: str) -> Address:
    """Split an address such as ``http://127.0.0.1:8710``; raises ValueError on one that is none."""
    parts = urlsplit(url)
    is_plain = not (parts.query or parts.fragment or parts.username or parts.password)
    if parts.scheme not in _PORTS or not parts.hostname or not is_plain or not _can_be_sent(url):
        raise ValueError(f"{url!r} is no service address; it looks like http://127.0.0.1:8710")
    port = parts.port or _PORTS[parts.scheme]
    return Address(parts.scheme, parts.hostname, port, parts.netloc, parts.path.rstrip("/"))


def connect(address: Address, deadline: Deadline) -> Steps[socket.socket]:
    """Connect to the first address of the host that takes it.

    Raises:
        UnreachableError: none does. DeadlineError: the time was up.
    """
    last = "it has no address"
    for family, _, _, _, place in (yield from _resolve(address, deadline)):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield from _connect(sock, place, deadline)
        except OSError as error:
            sock.close()
            last = error.strerror or type(error).__name__
        except BaseException:  # The time was up, or the call was cancelled.
            sock.close()
            raise
        else:
            return sock
    raise UnreachableError(f"no connection to {address.where}: {last}")


def _connect(sock: socket.socket, place: tuple[object, ...], deadline: Deadline) -> Steps[None]:
    code = sock.connect_ex(place)
    if code == errno.EINPROGRESS:
        if not (yield Wait(sock.fileno(), to_write=True, seconds=deadline.remaining_seconds)):
            raise DeadlineError("no connection was made in time")
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
    if sock.getsockname() == sock.getpeername():  # Where nobody listens, a local port may connect to itself.
        raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


def _resolve(address: Address, deadline: Deadline) -> Steps[list[tuple[int, int, int, str, tuple[object, ...]]]]:
    """The addresses of a host. A name is looked up in a thread, since the system has no way to do it in time."""
    try:
        return _look_up(address, socket.AI_NUMERICHOST)
    except OSError:
        pass
    ours, theirs = socket.socketpair()
    found: list[tuple[int, int, int, str, tuple[object, ...]]] = []
    errors: list[OSError] = []

    def look_up() -> None:
        """Ask the system, however long it takes; closing the socket tells who still waits for it."""
        with theirs:
            try:
                found.extend(_look_up(address, 0))
            except OSError as error:
                errors.append(error)

    with ours:
        threading.Thread(target=look_up, name="kvshelf-resolver", daemon=True).start()
        if not (yield Wait(ours.fileno(), to_write=False, seconds=deadline.remaining_seconds)):
            raise DeadlineError(f"{address.host} was not resolved in time")
    if errors:
        raise UnreachableError(f"{address.host} was not resolved: {errors[0].strerror}")
    return found


def _look_up(address: Address, flags: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    return socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=flags)  # type: ignore[return-value]


def _can_be_sent(url: str) -> bool:
    return url.isascii() and url.isprintable() and " " not in url
