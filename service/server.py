"""Run the service: open it, serve it over HTTP, stop it cleanly when asked."""

import asyncio
import math
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import structlog
import uvicorn
from fastapi import FastAPI

from service.access.hosts import is_loopback
from service.erasure.eraser import Eraser
from service.faces.context import Context
from service.local.server import LocalServer
from service.notify import READY, STOPPING, notify
from service.rest.app import create_app
from service.rest.protocol import BoundedHttpProtocol
from service.runtime import tune_allocator, tune_collector
from service.settings import Settings
from service.shelf.assemble import open_service
from service.shelf.upkeep import Upkeep
from service.tls import ServerTls
from storage.clock import Clock

if TYPE_CHECKING:
    from service.grpc.face import GrpcFace

KEEP_ALIVE_SECONDS = 75
"""How long an idle connection stays open: longer than the pause between two turns of most sessions."""

_LOG = structlog.get_logger("kvshelf.server")
_POLL_SECONDS = 0.02
_UNREAD_SECONDS = 1.0
"""How long a stop waits for the first fetch of a plan that was just answered: far more than its client takes."""


class _Server(uvicorn.Server):
    """Says when it listens, and stops in two steps: refuse what is new and wait, then close all connections.

    Args:
        config: how it serves.
        context: the face's; told when a stop begins.
        clock: for ``drain_seconds``.
        drain_seconds: how long a stop waits for requests under way. A second signal ends the wait.
        grpc: the gRPC face, which starts and stops with this one; None where there is none.
        on_ready: called when requests are answered.
        stop_asked: set when a stop was asked for before there was anything to stop.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        context: Context,
        clock: Clock,
        *,
        drain_seconds: float,
        grpc: "GrpcFace | None",
        on_ready: Callable[[], None],
        stop_asked: threading.Event,
    ) -> None:
        super().__init__(config)
        self._context = context
        self._clock = clock
        self._drain_seconds = drain_seconds
        self._grpc = grpc
        self._on_ready = on_ready
        self._stop_asked = stop_asked

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so, unless a stop was asked for while the service was being opened."""
        if self._grpc is not None:
            await self._grpc.start()
        await super().startup(sockets)
        if self._stop_asked.is_set():
            self.should_exit = True
        if self.started and not self.should_exit:
            self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's contract
        """The first signal asks for a stop; any further one ends the wait for requests under way."""
        self._context.is_draining = True
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse what is new while what is under way ends and leases are fetched, for the drain's time; then close."""
        notify(STOPPING)
        self._context.is_draining = True
        if self._grpc is not None:
            await self._grpc.drain()
        deadline = self._clock.monotonic() + self._drain_seconds
        unread_until = min(deadline, self._clock.monotonic() + _UNREAD_SECONDS)
        while self._is_to_wait(deadline, unread_until):  # noqa: ASYNC110 - a signal handler cannot set an event of the loop
            await asyncio.sleep(_POLL_SECONDS)
        if self._context.under_way:
            _LOG.warning("stop_waits_no_longer", requests=self._context.under_way)
            self.force_exit = True
            for task in self.server_state.tasks:
                task.cancel()
        # What was answered may still be on its way to slow readers.
        rest_seconds = 0.0 if self.force_exit else max(0.0, deadline - self._clock.monotonic())
        self.config.timeout_graceful_shutdown = math.ceil(rest_seconds)
        if self._grpc is not None:
            await self._grpc.stop(rest_seconds)
        await super().shutdown(sockets)

    def _is_to_wait(self, deadline: float, unread_until: float) -> bool:
        now = self._clock.monotonic()
        is_unread = now < unread_until and self._context.parts.leases.has_unread()
        return (is_unread or (self._context.under_way > 0 and now < deadline)) and not self.force_exit


def serve(settings: Settings, clock: Clock, on_ready: Callable[[str, str | None], None]) -> None:
    """Serve until SIGINT or SIGTERM; then finish what is under way, flush and return.

    Args:
        settings: all settings.
        clock: the machine's clock.
        on_ready: called with the base URL, and that of the gRPC face if there is one, once requests are answered.

    Raises:
        OSError: the address cannot be bound, the data directory not be opened, or the certificate not be used.
    """
    tune_allocator()
    os.umask(0o077)  # Whatever is made from here on is for nobody else to read.
    with ExitStack() as stack:
        stop_asked = stack.enter_context(_signals_noted())
        tls = ServerTls(settings.tls) if settings.tls.is_on else None
        _warn_of_plain_tokens(settings)
        listener = stack.enter_context(bind(settings.server.host, settings.server.port))
        parts = open_service(settings, clock)
        stack.callback(parts.close)
        app = create_app(parts)
        context: Context = app.state.context
        stack.callback(context.close)
        context.history.step()  # From here on the page counts.
        upkeep = Upkeep(parts, [context.history.step, *([tls.refresh] if tls else [])])
        upkeep.start()
        stack.callback(upkeep.stop)
        eraser = Eraser(parts, parts.erasures)
        eraser.start()
        stack.callback(eraser.stop)
        parts.scrubber.start()
        stack.callback(parts.scrubber.stop)

        if settings.local.enabled:
            context.local = LocalServer(parts)
            stack.callback(context.local.close)
        grpc = grpc_face(context, tls)
        tune_collector()

        def ready() -> None:
            url, grpc_url = url_of(listener, is_encrypted=settings.tls.is_on), grpc.url if grpc else None
            _LOG.info("serving", url=url, grpc=grpc_url, data_dir=str(settings.store.data_dir))
            on_ready(url, grpc_url)
            notify(READY)

        _Server(
            config_of(app, tls.context if tls else None),
            context,
            clock,
            drain_seconds=settings.server.drain_seconds,
            grpc=grpc,
            on_ready=ready,
            stop_asked=stop_asked,
        ).run([listener])
    _LOG.info("stopped")


def grpc_face(context: Context, tls: ServerTls | None) -> "GrpcFace | None":
    """The gRPC face, not started yet; None where the settings have no port for it."""
    if context.parts.settings.grpc.port is None:
        return None
    from service.grpc.face import GrpcFace  # takes a while, and is not used by most

    return GrpcFace(context, tls)


def _warn_of_plain_tokens(settings: Settings) -> None:
    if settings.access.token_file is not None and not settings.tls.is_on and not is_loopback(settings.server.host):
        _LOG.warning("tokens_travel_in_the_clear", host=settings.server.host)


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to an address; raises an OSError that names it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}") from None
    return listener


def url_of(listener: socket.socket, *, is_encrypted: bool = False) -> str:
    """The base URL of what listens on a socket."""
    host, port = listener.getsockname()[:2]
    scheme = "https" if is_encrypted else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def config_of(app: FastAPI, tls: ssl.SSLContext | None = None) -> uvicorn.Config:
    """How the HTTP server runs the face, encrypted where a context is given."""
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=BoundedHttpProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        ssl_context_factory=None if tls is None else lambda *_: tls,
    )


@contextmanager
def _signals_noted() -> Iterator[threading.Event]:
    """SIGINT and SIGTERM set the event for as long as this lasts: opening and closing are not to be torn apart.

    While it serves, the HTTP server has handlers of its own.
    """
    asked = threading.Event()
    earlier = {number: signal.signal(number, lambda *_: asked.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
