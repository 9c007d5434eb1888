"""Every error of the REST face is a problem document (RFC 9457): what is wrong, in which field, and how to mend it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match

from service.access import ScopeError
from service.leases.book import LeaseLimitError, UnknownLeaseError
from service.namespaces import (
    NamespaceConflictError,
    NamespaceError,
    NamespaceLimitError,
    UnknownNamespaceError,
)
from service.planner import InvalidRequestError
from service.profiles import ProfileError
from service.shelf.fetching import NoSuchShardError
from service.shelf.records import TierDownError

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1
MAX_MESSAGE_CHARACTERS = 300
"""What a message may repeat of the input that it is about."""

_LOG = structlog.get_logger("kvshelf.rest")
_TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    411: "Length required",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported media type",
    416: "Range not satisfiable",
    421: "Misdirected request",
    422: "Invalid input",
    500: "Internal error",
    503: "Unavailable",
    507: "Insufficient storage",
}


_PLACES = {
    "name": "path.name",
    "key": "path.key",
    "shard": "query.shard",
    "extra": "query.extra",
    "tokens": "body",
    "hashes": "body",
}
"""Where a namespace's field stands in a request, if it is no member of the body."""


class FieldError(BaseModel):
    """One field that is wrong."""

    field: str = Field(description="Where: such as `query.prompt_tokens` or `body.profile`.")
    message: str = Field(description="What is wrong with it.")


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    type: str = Field("about:blank", description="A URI that names the kind of problem.")
    title: str = Field(description="The kind of problem in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What went wrong here, and how to mend it.")
    errors: list[FieldError] = Field(default_factory=list, description="The fields that are wrong.")
    reason: str | None = Field(None, description="Of a record that is not there or was refused: why, in one word.")
    differences: list[dict[str, Any]] | None = Field(
        None, description="Of a namespace that is something else: field, registered, requested."
    )
    outcomes: list[dict[str, Any]] | None = Field(
        None, description="Of a store that broke off: what became of the records before that, as in its answer."
    )


class ProblemError(Exception):
    """Raise it anywhere in the face to answer with a problem document.

    ``extra`` members are added to the document, ``headers`` to the response.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})


def problem_response(error: ProblemError) -> Response:
    """The response of an error."""
    document: dict[str, Any] = {
        "type": "about:blank",
        "title": _TITLES.get(error.status, "Error"),
        "status": error.status,
        "detail": error.detail,
        "errors": [{"field": error.field, "message": error.detail}] if error.field else [],
    } | error.extra
    headers = {"Retry-After": str(RETRY_SECONDS)} if error.status in (429, 503) else {}
    return Response(msgspec.json.encode(document), error.status, headers | error.headers, MEDIA_TYPE)


def install_handlers(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Make every error that can leave a handler of ``routes`` a problem document."""

    async def on_error(request: Request, error: Exception) -> Response:
        problem = _translate(error)
        if problem.status == 405:
            problem.headers["Allow"] = ", ".join(_methods(routes, request))
        return problem_response(problem)

    for kind in (
        ProblemError,
        RequestValidationError,
        HTTPException,
        ClientDisconnect,
        ScopeError,
        UnknownLeaseError,
        LeaseLimitError,
        NamespaceError,
        NamespaceLimitError,
        NamespaceConflictError,
        UnknownNamespaceError,
        ProfileError,
        InvalidRequestError,
        NoSuchShardError,
        TierDownError,
        Exception,
    ):
        app.add_exception_handler(kind, on_error)


def _methods(routes: Sequence[BaseRoute], request: Request) -> list[str]:
    """Every method that some route has for the path of a request."""
    return sorted(
        {
            method
            for route in routes
            if route.matches(request.scope)[0] is not Match.NONE
            for method in getattr(route, "methods", None) or ()
        }
    )


def _translate(error: Exception) -> ProblemError:
    match error:
        case ProblemError():
            return error
        case RequestValidationError():
            return _from_validation(error)
        case HTTPException():
            detail = "there is no such route; /openapi.json has them all" if error.status_code == 404 else error.detail
            return ProblemError(error.status_code, detail, headers=error.headers)
        case ClientDisconnect():
            return ProblemError(400, "the connection ended before the request was whole")
        case ScopeError():
            return ProblemError(403, f"{error}")
        case UnknownLeaseError():
            return ProblemError(404, f"no lease {error}: it was released or its time is over; ask for a plan again")
        case LeaseLimitError():
            return ProblemError(503, f"{error}; release leases or raise lease.max_leases and lease.max_records")
        case UnknownNamespaceError():
            return ProblemError(404, f"{error}")
        case NamespaceLimitError():
            return ProblemError(507, f"{error}")
        case NamespaceConflictError():
            return _from_conflict(error)
        case InvalidRequestError():
            return ProblemError(422, str(error), field=f"query.{error.field}")
        case NamespaceError():
            return ProblemError(422, str(error), field=_PLACES.get(error.field, f"body.{error.field}"))
        case ProfileError():
            return ProblemError(422, str(error), field="body.profile")
        case NoSuchShardError():
            return ProblemError(422, str(error), field="query.shard")
        case TierDownError():
            return ProblemError(
                503, f"{error}; what is there will be known when it does", extra={"reason": "tier_down"}
            )
    _LOG.error("unexpected_error", exc_info=error)
    return ProblemError(500, "something unexpected happened; the log has it under event unexpected_error")


def _from_validation(error: RequestValidationError) -> ProblemError:
    fields = [
        {"field": ".".join(str(part) for part in problem["loc"]), "message": problem["msg"][:MAX_MESSAGE_CHARACTERS]}
        for problem in error.errors()
    ]
    return problem_of_fields(fields)


def problem_of_fields(fields: list[dict[str, str]]) -> ProblemError:
    """A 422 about several fields; a great many are cut short."""
    detail = "; ".join(f"{field['field']}: {field['message']}" for field in fields[:10])
    return ProblemError(422, detail, extra={"errors": fields[:100]})


def _from_conflict(error: NamespaceConflictError) -> ProblemError:
    differences = [
        {"field": field, "registered": registered, "requested": requested}
        for field, registered, requested in error.differences
    ]
    return ProblemError(409, str(error), extra={"differences": differences})


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route's OpenAPI entry for the problems it may answer with."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _TITLES[status], "content": content} for status in statuses}
