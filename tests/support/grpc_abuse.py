"""What no client of gRPC should do, done over real connections."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from tests.support.grpc_engine import GrpcEngine, RefusedError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What a client begins a connection with, and empty settings."""


def outcome(call: Any) -> tuple[grpc.StatusCode, RefusedError]:
    """How a call ends that is read to its end; an AssertionError when it ends well."""
    try:
        for _ in call:
            pass
    except grpc.RpcError as error:
        refused = RefusedError(error)
        return refused.code, refused
    raise AssertionError("this call ended well")


class HalfSent:
    """A store that begins with these messages, and then says nothing more until it is let go."""

    def __init__(self, engine: GrpcEngine, messages: list[pb.StoreChunk]) -> None:
        self._messages = messages
        self._is_left = threading.Event()
        self.call = engine.raw("Store", self._send(), seconds=None)

    def leave(self) -> None:
        """Let go of it."""
        self._is_left.set()

    def _send(self) -> Iterator[bytes]:
        for message in self._messages:
            yield message.SerializeToString()
        self._is_left.wait(60)


@contextmanager
def connections(port: int, count: int, greet: Callable[[int], bytes]) -> Iterator[list[socket.socket]]:
    """So many bare connections, each of which sends what ``greet`` says for its number."""
    opened: list[socket.socket] = []
    try:
        for number in range(count):
            opened.append(socket.create_connection(("127.0.0.1", port), timeout=20))
            opened[-1].sendall(greet(number))
        yield opened
    finally:
        for one in opened:
            one.close()


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has hung up; what it has sent before that is read."""
    connection.settimeout(0.001)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True
