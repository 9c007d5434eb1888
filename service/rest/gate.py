"""The gate before all routes: who asks is found out before anything else is looked at."""

from typing import Annotated, Final

from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from service.access import AccessDeniedError, Principal, Scope
from service.access.hosts import AllowedHosts
from service.faces.problems import ProblemError
from service.faces.tokens import bearer_token
from service.rest.problems import problem_response
from service.shelf.parts import Parts

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/", "/page/app.js", "/page/plots.js", "/page/style.css"})
"""Answered to anybody: whoever starts and stops services has no token, and learns nothing of any tenant.

A browser sends no token when it is sent to a page, and the page's own files have no figure in them.
"""
_OTHER_HOST = (
    "without tokens this service answers requests to this machine only: ask for 127.0.0.1, ::1 or localhost, or name"
    " the host in access.allowed_hosts"
)


class Gate:
    """ASGI middleware. Nobody without a token that is taken gets beyond it, on whatever path.

    Where no tokens are configured, nobody gets beyond it who asks for another host than this machine.
    """

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self._app = app
        self._access = parts.access
        self._hosts = AllowedHosts(parts.settings.access.allowed_hosts)
        self._denials = parts.metrics.denials

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Let a request through with its principal, or answer with a 401 or a 421."""
        if scope["type"] == "http":
            try:
                self._check(scope)
            except ProblemError as problem:
                await problem_response(problem)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: AsgiScope) -> None:
        headers = Headers(scope=scope)
        if not self._access.is_guarded and not self._hosts.allow(headers.get("host"), headers.get("origin")):
            self._denials.labels("host").inc()
            raise ProblemError(421, _OTHER_HOST)
        if scope["path"] in OPEN_PATHS:
            return
        try:
            scope.setdefault("state", {})["principal"] = self._access.authenticate(
                bearer_token(headers.get("authorization"))
            )
        except AccessDeniedError as error:
            challenge = {"WWW-Authenticate": 'Bearer realm="kvshelf"'}
            raise ProblemError(401, str(error), headers=challenge) from None


async def reader(request: Request) -> Principal:
    """Who asks; a 403 unless they may read."""
    return _with_scope(request, Scope.READ)


async def _writer(request: Request) -> Principal:
    return _with_scope(request, Scope.WRITE)


async def _admin(request: Request) -> Principal:
    return _with_scope(request, Scope.ADMIN)


async def _overseer(request: Request) -> Principal:
    principal: Principal = request.state.principal
    principal.require_operator(Scope.READ)
    return principal


async def _operator_admin(request: Request) -> Principal:
    principal: Principal = request.state.principal
    principal.require_operator(Scope.ADMIN)
    return principal


def _with_scope(request: Request, scope: Scope) -> Principal:
    principal: Principal = request.state.principal
    principal.require(scope)
    return principal


Reader = Annotated[Principal, Depends(reader)]
"""Who asks; a 403 unless they may read."""
Writer = Annotated[Principal, Depends(_writer)]
"""Who asks; a 403 unless they may write."""
Admin = Annotated[Principal, Depends(_admin)]
"""Who asks; a 403 unless they may erase."""
Overseer = Annotated[Principal, Depends(_overseer)]
"""Who asks; a 403 unless they may see what concerns all tenants."""
OperatorAdmin = Annotated[Principal, Depends(_operator_admin)]
"""Who asks; a 403 unless they may do what concerns all tenants."""
