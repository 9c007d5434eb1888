"""The contract of a transport: how requests reach a service and answers come back. One package an implementation.

A transport moves bytes and decodes answers. What must be the same whichever one is used is above it, once: the time
budget of a call, retries, the circuit breaker, counters, checksums, and what a fault means to an engine.
"""

from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from kvshelf_client.deadline import Deadline
from kvshelf_client.frames import FrameHeader
from kvshelf_client.requests import Request

T = TypeVar("T")


class Sink(Protocol):
    """Where a fetch goes, frame after frame. For each of them: one ``begin``, the payload, one ``end``."""

    def expect(self) -> None:
        """Nothing has come yet: what can be made ready is, now that nobody waits for it. It need not be called."""
        ...

    def begin(self, header: FrameHeader) -> memoryview:
        """A header has come. Returns where its payload goes, all ``header.length_bytes`` of it: writable, format ``B``.

        Raises:
            KvshelfError: the frame is not wanted. Stop the transfer, and let the error through.
        """
        ...

    def end(self) -> bool:
        """The payload is there, whole. It is checked now: returns whether it is what its header says.

        It is not an error if it is not: a transport may then bring the same frame once more, from elsewhere, or else
        the next one, which is refused. Raises as :meth:`begin`.
        """
        ...


class Transport(Protocol):
    """Calls one service. Threads may share it, and many calls may be under way.

    It never retries: that is decided above it. It keeps connections between calls, and none that an answer went wrong
    on: what one call has left unread must never be read by the next. A connection made before a fork is not used
    after it.
    """

    def call(self, request: Request[T], deadline: Deadline) -> T:
        """Do one request.

        It returns or raises when ``deadline`` is over, within some milliseconds, wherever it waits: for a name, a
        connect, a hand-shake, a send or an answer.

        Raises:
            ServiceError: the service answered with an error. ``status`` is that of the REST face on every transport.
            UnreachableError: no connection, or it broke before the answer was whole.
            DeadlineError: the time was up.
            AnswerError: the answer is not what was promised. FrameError: nor is a frame.
        """
        ...

    def close(self) -> None:
        """Let go of all connections. Calls under way fail, later ones too."""
        ...


class AsyncTransport(Protocol):
    """The same for asyncio. A call that is cancelled lets go of its connection, and is over at once."""

    async def call(self, request: Request[T], deadline: Deadline) -> T:
        """See :meth:`Transport.call`. It never blocks the event loop."""
        ...

    async def close(self) -> None:
        """See :meth:`Transport.close`."""
        ...


@dataclass(frozen=True)
class Tls:
    """Files in PEM format. Without ``ca_file`` what the system trusts is trusted; a certificate goes with its key."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True)
class TransportOptions:
    """What all transports take.

    Args:
        token: sent with every request; None for none.
        tls: for the schemes that are encrypted.
        connect_seconds: longest wait for a connection, inside the call's deadline.
        read_seconds: longest silence of the service within a call, inside its deadline.
        max_connections: the most calls that are under way at a time; whoever uses the transport sees to that.
        max_payload_bytes: a frame that announces more is refused before memory is taken for it.
        local: over ``http`` and ``https``, fetch from the service's files where it is on this machine and allows it.
    """

    token: str | None = field(default=None, repr=False)
    tls: Tls = Tls()
    connect_seconds: float = 0.5
    read_seconds: float = 30.0
    max_connections: int = 64
    max_payload_bytes: int = 1 << 30
    local: bool = True


class TransportModule(Protocol):
    """What the package of a transport offers."""

    def connect(self, url: str, options: TransportOptions) -> Transport:
        """A transport for ``url``. Nothing is sent yet. Raises ValueError on an address that is none."""
        ...

    def connect_async(self, url: str, options: TransportOptions) -> AsyncTransport:
        """The same for asyncio."""
        ...


_PACKAGES = {
    "http": "kvshelf_client.http",
    "https": "kvshelf_client.http",
    "grpc": "kvshelf_client.grpc",
    "grpcs": "kvshelf_client.grpc",
}


def transport_module(url: str) -> TransportModule:
    """The package that speaks the scheme of ``url``, imported when it is first asked for.

    Raises:
        ValueError: no transport has this scheme.
        ImportError: it takes packages that are not installed; the text says which extra brings them.
    """
    package = _PACKAGES.get(urlsplit(url).scheme)
    if package is None:
        raise ValueError(f"{url!r} is no service address; it looks like http://127.0.0.1:8710")
    try:
        return import_module(package)
    except ImportError as error:
        extra = package.rpartition(".")[2]
        raise ImportError(f"{url!r} takes kvshelf-client[{extra}]: {error}") from error
