"""Run the service: open it, serve it over HTTP, stop it cleanly when asked."""

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from service.rest.app import create_app
from service.rest.context import Context
from service.rest.protocol import BoundedHttpProtocol
from service.settings import Settings
from service.shelf.assemble import open_service
from service.shelf.upkeep import Upkeep
from storage.clock import Clock

KEEP_ALIVE_SECONDS = 75
"""How long an idle connection stays open: longer than the pause between two turns of most sessions."""

_LOG = structlog.get_logger("kvshelf.server")


class _Server(uvicorn.Server):
    """Says when it listens and when it begins to stop."""

    def __init__(self, config: uvicorn.Config, context: Context, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._context = context
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._context.is_draining = True
        super().handle_exit(sig, frame)


def serve(settings: Settings, clock: Clock, on_ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; then finish what is under way, flush and return.

    Args:
        settings: all settings.
        clock: the machine's clock.
        on_ready: called with the base URL once requests are answered.

    Raises:
        OSError: the address cannot be bound, or the data directory not be opened.
    """
    with ExitStack() as stack:
        listener = stack.enter_context(bind(settings.server.host, settings.server.port))
        parts = open_service(settings, clock)
        stack.callback(parts.close)
        upkeep = Upkeep(parts)
        upkeep.start()
        stack.callback(upkeep.stop)
        app = create_app(parts)
        stack.callback(app.state.context.close)
        with _signals_kept():
            _Server(config_of(settings, app), app.state.context, lambda: on_ready(url_of(listener))).run([listener])
    _LOG.info("stopped")


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


def url_of(listener: socket.socket) -> str:
    """The base URL of what listens on a socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def config_of(settings: Settings, app: FastAPI) -> uvicorn.Config:
    """How the HTTP server runs the face."""
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=BoundedHttpProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(settings.server.drain_seconds)),
    )


@contextmanager
def _signals_kept() -> Iterator[None]:
    """The HTTP server raises the signal that stopped it again when it is done; a clean stop must not end by it."""
    earlier = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
