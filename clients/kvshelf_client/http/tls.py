"""TLS over a socket that never blocks. Imported for ``https`` only."""

import socket
import ssl
from collections.abc import Callable
from typing import TypeVar

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import DeadlineError, UnreachableError
from kvshelf_client.http.connecting import Address
from kvshelf_client.http.steps import Steps, Wait
from kvshelf_client.transport import Tls

T = TypeVar("T")


def context_of(tls: Tls) -> ssl.SSLContext:
    """What is trusted, and the certificate to show. Raises OSError on a file that is none."""
    context = ssl.create_default_context(cafile=tls.ca_file)
    if tls.certificate_file is not None:
        context.load_cert_chain(tls.certificate_file, tls.key_file)
    return context


class TlsSocket:
    """Has of a socket what a :class:`~kvshelf_client.http.channel.Channel` needs."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self.fileno = sock.fileno
        self.close = sock.close

    def recvmsg_into(self, buffers: list[memoryview], /) -> tuple[int]:
        """Receive into the first buffer; TLS reads ahead by itself."""
        return (_translated(lambda: self._sock.recv_into(buffers[0])),)

    def sendmsg(self, buffers: list[memoryview], /) -> int:
        """Send some of the first buffer that has anything."""
        first = next((buffer for buffer in buffers if buffer), None)
        return 0 if first is None else _translated(lambda: self._sock.send(first))


def shake_hands(sock: socket.socket, context: ssl.SSLContext, address: Address, deadline: Deadline) -> Steps[TlsSocket]:
    """Encrypt a connection; the socket is closed when that fails.

    Raises:
        UnreachableError: the service is not who it should be, or speaks no TLS. DeadlineError: the time was up.
    """
    try:
        secure = context.wrap_socket(sock, do_handshake_on_connect=False, server_hostname=address.host)
    except (OSError, ValueError) as error:
        sock.close()
        raise UnreachableError(f"no TLS with {address.where}: {error}") from error
    try:
        while True:
            try:
                secure.do_handshake()
            except ssl.SSLWantReadError:
                to_write = False
            except ssl.SSLWantWriteError:
                to_write = True
            else:
                return TlsSocket(secure)
            if not (yield Wait(secure.fileno(), to_write=to_write, seconds=deadline.remaining_seconds)):
                raise DeadlineError("no hand-shake was made in time")
    except OSError as error:
        secure.close()
        raise UnreachableError(f"no TLS with {address.where}: {error}") from error
    except BaseException:  # The time was up, or the call was cancelled.
        secure.close()
        raise


def _translated(call: Callable[[], T]) -> T:
    try:
        return call()
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
        raise BlockingIOError from error
