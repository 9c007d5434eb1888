"""A TCP proxy in front of a server, that makes the network between them slow or cuts it, and counts connections."""

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType

from storage.clock import SystemClock

_CHUNK_BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)
"""A linger of no time: closing resets."""


class Proxy:
    """Listens on a free port of 127.0.0.1 and passes bytes on, one thread a connection.

    What may be set at any time, for all connections:

    * ``delay_seconds``: how long every piece of an answer is held back.
    * ``trickle_bytes``: answers come in pieces of so many bytes, each held back on its own; 0 for as they come.
    * ``cut_after_bytes``: so many bytes of answers later the connection is cut; None for never.
    * ``is_silent``: nothing is passed on any more, and nobody is told.
    * ``is_resetting``: what is accepted is reset.
    * ``spoil``: changes each piece of an answer.
    """

    def __init__(self, port: int) -> None:
        self.delay_seconds = 0.0
        self.trickle_bytes = 0
        self.cut_after_bytes: int | None = None
        self.is_silent = self.is_resetting = False
        self.spoil: Callable[[bytes], bytes] = lambda piece: piece
        self.accepted_at: list[float] = []
        """When each connection was accepted, on the monotonic clock."""
        self.aim(port)
        # Two sockets have the port, so that nobody takes it while the proxy does not listen.
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.port: int = self._holder.getsockname()[1]
        self._listener = self._listen()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._run(self._accept, self._listener)

    def _listen(self) -> socket.socket:
        return socket.create_server(("127.0.0.1", self.port), reuse_port=True)

    @property
    def url(self) -> str:
        """Where it is, as a Redis URL."""
        return f"redis://127.0.0.1:{self.port}/0"

    def aim(self, port: int) -> None:
        """Connect what is accepted from now on to that port of 127.0.0.1."""
        self._target = ("127.0.0.1", port)

    def stop_listening(self) -> None:
        """Refuse connections, and cut every one there is."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()

    def listen_again(self) -> None:
        """Accept connections again, at the same place."""
        self._listener = self._listen()
        self._run(self._accept, self._listener)

    def cut_all(self) -> None:
        """Cut every connection there is."""
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut everything, and listen no more."""
        self._stop.set()
        self.stop_listening()
        self._holder.close()
        for thread in self._threads:
            thread.join(20)

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        with self._lock:
            self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.accepted_at.append(SystemClock().monotonic())
            if self.is_resetting:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                client.close()
            else:
                self._run(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target, 5) as server:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            both = {client, server}
            with self._lock:
                self._open |= both
            try:
                self._pass_on(client, server)
            finally:
                with self._lock:
                    self._open -= both

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in selector.select():
                    source = client if key.fileobj is client else server
                    data = source.recv(_CHUNK_BYTES)
                    if not data:
                        return
                    if self.is_silent:
                        continue
                    if source is client:
                        server.sendall(data)
                    elif not self._answer(client, data):
                        return

    def _answer(self, client: socket.socket, data: bytes) -> bool:
        """Pass a piece of an answer on, as slowly as is set; False when the connection is to be cut."""
        data = self.spoil(data)
        size = self.trickle_bytes or len(data)
        for start in range(0, len(data), size):
            if self.delay_seconds and self._stop.wait(self.delay_seconds):
                return False
            piece = data[start : start + size]
            if self.cut_after_bytes is not None:
                piece = piece[: self.cut_after_bytes]
                self.cut_after_bytes -= len(piece)
            client.sendall(piece)
            if self.cut_after_bytes == 0:
                self.cut_after_bytes = None
                return False
        return True
