"""The faces on real sockets, in a thread of this process, over whatever parts a test gives it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from service.faces.context import Context
from service.grpc.face import GrpcFace
from service.local.server import LocalServer
from service.rest.app import create_app
from service.server import bind, config_of, grpc_face, url_of
from service.shelf.parts import Parts
from service.tls import ServerTls

START_SECONDS = 20.0


@dataclass(frozen=True)
class Live:
    """A running service: its parts, and where it listens; over gRPC if the settings have a port for it."""

    parts: Parts
    url: str
    grpc_url: str | None
    context: Context
    tls: ServerTls | None


class _ThreadedServer(uvicorn.Server):
    """Says when it listens, so that nobody has to poll. It runs in a thread, where it installs no signal handlers."""

    def __init__(self, config: uvicorn.Config, grpc: GrpcFace | None) -> None:
        super().__init__(config)
        self._grpc = grpc
        self.listening = threading.Event()

    async def startup(self, sockets: object = None) -> None:
        await super().startup(sockets)  # type: ignore[arg-type]
        if self._grpc is not None:
            await self._grpc.start()
        self.listening.set()

    async def shutdown(self, sockets: object = None) -> None:
        if self._grpc is not None:
            await self._grpc.stop(0)
        await super().shutdown(sockets)  # type: ignore[arg-type]


@contextmanager
def live(parts: Parts, *, with_local: bool = False) -> Iterator[Live]:
    """Serve ``parts`` on a free loopback port, and over the local path; the caller keeps and closes the parts."""
    with bind("127.0.0.1", 0) as listener:
        app = create_app(parts)
        app.state.context.local = LocalServer(parts) if with_local else None
        tls = ServerTls(parts.settings.tls) if parts.settings.tls.is_on else None
        grpc = grpc_face(app.state.context, tls)
        server = _ThreadedServer(config_of(app, tls.context if tls else None), grpc)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            assert server.listening.wait(START_SECONDS), "the server did not start"
            url = url_of(listener, is_encrypted=tls is not None)
            yield Live(parts, url, grpc.url if grpc else None, app.state.context, tls)
        finally:
            server.should_exit = True
            thread.join(START_SECONDS)
            app.state.context.close()
            if app.state.context.local is not None:
                app.state.context.local.close()
            assert not thread.is_alive(), "the server did not stop"
