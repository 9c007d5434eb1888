"""A REST face on a real socket, in a thread of this process, over whatever parts a test gives it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from service.rest.app import create_app
from service.server import bind, config_of, url_of
from service.shelf.parts import Parts

START_SECONDS = 20.0


@dataclass(frozen=True)
class Live:
    """A running face: its parts, and where it listens."""

    parts: Parts
    url: str


class _ThreadedServer(uvicorn.Server):
    """Says when it listens, so that nobody has to poll. It runs in a thread, where it installs no signal handlers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()

    async def startup(self, sockets: object = None) -> None:
        await super().startup(sockets)  # type: ignore[arg-type]
        self.listening.set()


@contextmanager
def live(parts: Parts) -> Iterator[Live]:
    """Serve ``parts`` on a free loopback port; the caller keeps and closes the parts."""
    with bind("127.0.0.1", 0) as listener:
        app = create_app(parts)
        server = _ThreadedServer(config_of(app))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            assert server.listening.wait(START_SECONDS), "the server did not start"
            yield Live(parts, url_of(listener))
        finally:
            server.should_exit = True
            thread.join(START_SECONDS)
            app.state.context.close()
            assert not thread.is_alive(), "the server did not stop"
