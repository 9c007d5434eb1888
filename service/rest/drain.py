"""The gate before all routes: counts the requests under way, and takes no new ones once a stop was asked for."""

import asyncio

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.faces.context import Context
from service.faces.problems import STOPPING, ProblemError
from service.rest.problems import problem_response

ANSWERED_WHILE_DRAINING = frozenset({"/healthz", "/readyz", "/metrics", "/v1/stats", "/v1/overview"})
_LEASES = "/v1/leases/"
"""What was leased before a stop may be fetched and given back until the end of it."""
_LOG = structlog.get_logger("kvshelf.rest")


class Drain:
    """ASGI middleware. What was begun before a stop goes on, leases are served; anything else is refused with a 503."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http" or scope["path"] in ANSWERED_WHILE_DRAINING:
            await self._app(scope, receive, send)
        elif self._context.is_draining and not scope["path"].startswith(_LEASES):
            await _refuse(scope, receive, send)
        else:
            self._context.under_way += 1
            try:
                await self._run(scope, receive, send)
            finally:
                self._context.under_way -= 1

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request to its end, or until the stop has no more patience with it."""
        is_answering = False

        async def note(message: Message) -> None:
            nonlocal is_answering
            is_answering = True
            await send(message)

        try:
            await self._app(scope, receive, note)
        except asyncio.CancelledError:
            if not self._context.is_draining:
                raise
            _LOG.warning("request_cut_off", method=scope["method"], is_answering=is_answering)
            if not is_answering:
                await _refuse(scope, receive, send)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    response = problem_response(ProblemError(503, STOPPING, headers={"Connection": "close"}))
    await response(scope, receive, send)
