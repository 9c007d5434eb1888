"""Spans of requests on the faces that take part in traces: what they have in common, and those of REST."""

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.tracing.base import Tracing

FIELDS: Final = ("traceparent", "tracestate")
"""What of W3C trace context a caller may send, as a header of REST or in the metadata of gRPC."""
UNTRACED: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""What is asked for every few seconds, and by nobody who looks at traces."""
_SERVER_ERROR = 500


class TracedRequests:
    """ASGI middleware. Each request is a span, named by its method and route."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request within its span."""
        if scope["type"] != "http" or scope["path"] in UNTRACED:
            await self._app(scope, receive, send)
            return
        sent = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name.decode() in FIELDS}
        with self._tracing.request(scope["method"], "rest", sent) as span:

            async def note(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status = message["status"]
                    span.answered(str(status), is_failure=status >= _SERVER_ERROR)
                await send(message)

            try:
                await self._app(scope, receive, note)
            finally:
                if route := scope.get("route"):
                    span.renamed(f"{scope['method']} {route.path}")
