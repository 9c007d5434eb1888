"""Spans of requests on the faces that take part in traces."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.tracing.base import Tracing

FIELDS: Final = ("traceparent", "tracestate")
"""What of W3C trace context a caller may send, as a header of REST or in the metadata of gRPC."""
UNTRACED: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""What is asked for every few seconds, and by nobody who looks at traces."""
_FAILURES = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
_SERVER_ERROR = 500
Serve = Callable[[Any, Any], Awaitable[None]]
"""The handler of a verb of gRPC."""


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


def traced_call(tracing: Tracing | None, name: str, serve: Serve) -> Serve:
    """The handler of a verb, each call of which is a span of that name; the same one where nothing is traced."""
    if tracing is None:
        return serve

    async def traced(messages: Any, rpc: Any) -> None:
        """Serve a call within its span."""
        sent = {key: value for key, value in rpc.invocation_metadata() or () if key in FIELDS}
        with tracing.request(name, "grpc", sent) as span:
            try:
                await serve(messages, rpc)
            finally:
                code = _CODES[rpc.code() or 0]
                span.answered(code.name, is_failure=code in _FAILURES)

    return traced
