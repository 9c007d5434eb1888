"""The local face: takes clients in, one thread each, and lets go of all of them at the stop."""

import secrets
import socket
import threading
from contextlib import ExitStack

import structlog

from kvshelf_client.local.wire import INSTANCE_BYTES, Refusal
from service.local.conversation import Conversation
from service.local.listener import listening
from service.shelf.parts import Parts

_LOG = structlog.get_logger("kvshelf.local")
_PAUSE_SECONDS = 0.1
SOCKET = "local.sock"
"""The socket file in the data directory, where the settings name no other."""


class LocalServer:
    """Serves the local path of a service from its making until :meth:`close`. Has threads, and no event loop.

    Raises:
        OSError: see :func:`listening`.
    """

    def __init__(self, parts: Parts) -> None:
        settings = parts.settings
        self.path = (settings.local.socket or settings.store.data_dir / SOCKET).absolute()
        self.instance = secrets.token_bytes(INSTANCE_BYTES)
        """What this service is called until it ends: a client proves by it that both faces are of one process."""
        self._parts = parts
        self._closing = ExitStack()
        self._listener = self._closing.enter_context(listening(self.path))
        self._lock = threading.Lock()
        self._clients: dict[Conversation, threading.Thread] = {}
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="kvshelf-local", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take nobody in any more, hang up on everybody and wait for what is under way."""
        self._is_stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        with self._lock:
            clients = dict(self._clients)
        for client, thread in clients.items():
            client.hang_up()
            thread.join()
        self._closing.close()

    def _accept(self) -> None:
        while not self._is_stopping.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if not self._is_stopping.wait(_PAUSE_SECONDS):
                    _LOG.warning("local_accept_failed", reason=str(error))
                continue
            self._take_in(sock)

    def _take_in(self, sock: socket.socket) -> None:
        client = Conversation(self._parts, sock, self.instance)
        thread = threading.Thread(target=self._talk, args=(client,), name="kvshelf-local-client", daemon=True)
        with self._lock:
            is_full = len(self._clients) >= self._parts.settings.local.max_clients
            if not is_full:
                self._clients[client] = thread
                self._parts.metrics.local_clients.set(len(self._clients))
        if is_full:
            client.turn_away(Refusal.BUSY, "there are as many clients as there may be")
        else:
            thread.start()

    def _talk(self, client: Conversation) -> None:
        try:
            client.run()
        except Exception:  # noqa: BLE001 - logged: one client's trouble is nobody else's.
            _LOG.exception("local_client_failed")
        finally:
            with self._lock:
                self._clients.pop(client)
                self._parts.metrics.local_clients.set(len(self._clients))
