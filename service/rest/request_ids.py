"""The outermost layer of the REST face: every request has an id, and its answer says which."""

from collections.abc import Iterable

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvshelf_client.request_ids import HEADER
from service.request_ids import begin_request_id

HEADER_NAME = HEADER.encode()


class RequestIds:
    """ASGI middleware. Takes the id that a caller sends, or makes one, and puts it into the head of the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._log = structlog.get_logger("kvshelf.rest").bind()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request under its id."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        field = (HEADER_NAME, begin_request_id(sent_id(scope["headers"])).encode())

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], field]
                self._log.debug("answered", method=scope["method"], status=message["status"])
            await send(message)

        await self._app(scope, receive, tell)


def sent_id(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """What a caller sent as an id, whatever it is; None where it sent nothing."""
    for name, value in headers:
        if name == HEADER_NAME:
            return value.decode("latin-1")
    return None
