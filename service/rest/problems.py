"""Every error of the REST face is a problem document (RFC 9457): what is wrong, in which field, and how to mend it."""

from collections.abc import Mapping
from typing import Any

import msgspec
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

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

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1

_LOG = structlog.get_logger("kvshelf.rest")
_TITLES = {
    400: "Bad request",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    411: "Length required",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported media type",
    416: "Range not satisfiable",
    422: "Invalid input",
    500: "Internal error",
    503: "Unavailable",
    507: "Insufficient storage",
}


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


def install_handlers(app: FastAPI) -> None:
    """Make every error that can leave a handler a problem document."""

    async def on_error(_request: Request, error: Exception) -> Response:
        return problem_response(_translate(error))

    for kind in (
        ProblemError,
        RequestValidationError,
        HTTPException,
        ClientDisconnect,
        UnknownLeaseError,
        LeaseLimitError,
        NamespaceError,
        NamespaceLimitError,
        NamespaceConflictError,
        UnknownNamespaceError,
        ProfileError,
        InvalidRequestError,
        NoSuchShardError,
        Exception,
    ):
        app.add_exception_handler(kind, on_error)


def _translate(error: Exception) -> ProblemError:
    match error:
        case ProblemError():
            return error
        case RequestValidationError():
            return _from_validation(error)
        case HTTPException():
            return ProblemError(error.status_code, str(error.detail), headers=error.headers)
        case ClientDisconnect():
            return ProblemError(400, "the connection ended before the request was whole")
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
            return ProblemError(422, str(error), field=error.field)
        case NamespaceError() | ProfileError() | NoSuchShardError():
            return ProblemError(422, str(error), field=getattr(error, "field", None))
    _LOG.error("unexpected_error", exc_info=error)
    return ProblemError(500, "something unexpected happened; the log has it under event unexpected_error")


def _from_validation(error: RequestValidationError) -> ProblemError:
    fields = [
        {"field": ".".join(str(part) for part in problem["loc"]), "message": problem["msg"]}
        for problem in error.errors()
    ]
    detail = "; ".join(f"{field['field']}: {field['message']}" for field in fields)
    return ProblemError(422, detail, extra={"errors": fields})


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
