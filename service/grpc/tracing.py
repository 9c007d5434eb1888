"""Spans of calls."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from service.tracing.base import Tracing
from service.tracing.faces import FIELDS

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
Serve = Callable[[Any, Any], Awaitable[None]]
"""The handler of a verb."""


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
