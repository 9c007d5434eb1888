"""The gate before all routes: who asks is found out before anything else is looked at."""

from typing import Annotated, Final

from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from service.access import Access, AccessDeniedError, Principal, Scope
from service.rest.problems import ProblemError, problem_response

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Answered to anybody: whoever starts and stops services has no token, and learns nothing of any tenant."""
_SCHEME = "bearer"


class Gate:
    """ASGI middleware. Nobody without a token that is taken gets beyond it, on whatever path."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Let a request through with its principal, or answer with a 401."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            try:
                principal = self._access.authenticate(_token(Headers(scope=scope)))
            except AccessDeniedError as error:
                await problem_response(_denied(error))(scope, receive, send)
                return
            scope.setdefault("state", {})["principal"] = principal
        await self._app(scope, receive, send)


def _token(headers: Headers) -> str | None:
    """The token of ``Authorization: Bearer ...``; None where there is no such header, empty where it is another one."""
    value = headers.get("authorization")
    if value is None:
        return None
    scheme, _, token = value.partition(" ")
    return token.strip() if scheme.lower() == _SCHEME else ""


def _denied(error: AccessDeniedError) -> ProblemError:
    return ProblemError(401, str(error), headers={"WWW-Authenticate": 'Bearer realm="kvshelf"'})


async def _reader(request: Request) -> Principal:
    return _with_scope(request, Scope.READ)


async def _writer(request: Request) -> Principal:
    return _with_scope(request, Scope.WRITE)


async def _admin(request: Request) -> Principal:
    return _with_scope(request, Scope.ADMIN)


async def _overseer(request: Request) -> Principal:
    principal: Principal = request.state.principal
    principal.require_operator(Scope.READ)
    return principal


def _with_scope(request: Request, scope: Scope) -> Principal:
    principal: Principal = request.state.principal
    principal.require(scope)
    return principal


Reader = Annotated[Principal, Depends(_reader)]
"""Who asks; a 403 unless they may read."""
Writer = Annotated[Principal, Depends(_writer)]
"""Who asks; a 403 unless they may write."""
Admin = Annotated[Principal, Depends(_admin)]
"""Who asks; a 403 unless they may erase."""
Overseer = Annotated[Principal, Depends(_overseer)]
"""Who asks; a 403 unless they may see what concerns all tenants."""
