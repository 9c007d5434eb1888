"""The gate before all routes: bounds the requests under way, and takes no new ones once a stop was asked for."""

import asyncio

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.access import Principal
from service.faces.admission import Admitted, source_of
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
            try:
                admitted = self._context.admission.admit(_source(scope))
            except ProblemError as problem:
                await problem_response(problem)(scope, receive, send)
                return
            scope.setdefault("state", {})["admitted"] = admitted
            self._context.under_way += 1
            try:
                with admitted:
                    await self._run(scope, _counted(receive, admitted), send)
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


def _source(scope: Scope) -> str:
    """Who is to share with others: the tenant, or where there are none, the address."""
    principal: Principal | None = scope.get("state", {}).get("principal")
    return source_of(principal.tenant if principal else None, scope["client"][0] if scope.get("client") else "")


def _counted(receive: Receive, admitted: Admitted) -> Receive:
    """Count the bytes of a body as they arrive."""

    async def counted() -> Message:
        message = await receive()
        if body := message.get("body"):
            await admitted.hold(len(body))
        return message

    return counted


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    response = problem_response(ProblemError(503, STOPPING, headers={"Connection": "close"}))
    await response(scope, receive, send)
