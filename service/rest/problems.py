"""Every error of the REST face is a problem document (RFC 9457), whose fields are said with their place."""

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match

from kvshelf_client.errors import NO_ROUTE
from kvshelf_client.request_ids import HEADER
from service.faces.problems import (
    KNOWN_ERRORS,
    MAX_MESSAGE_CHARACTERS,
    RETRY_SECONDS,
    TITLES,
    ProblemError,
    problem_document,
    problem_of,
    problem_of_fields,
)
from service.request_ids import request_id_in_force

MEDIA_TYPE = "application/problem+json"

_IN_QUERY = (
    "prompt_tokens",
    "hbm_tokens",
    "hbm_exact_tokens",
    "max_load_bytes_per_saved_token",
    "supports",
    "lease_ttl_seconds",
    "shard",
    "extra",
)
_PLACES = {name: f"query.{name}" for name in _IN_QUERY} | {
    "name": "path.name",
    "key": "path.key",
    "tokens": "body",
    "hashes": "body",
    "frames": "body",
}
"""Where a field stands in a request, if it is no member of the body."""


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
    request_id: str | None = Field(None, description="What the request is called in the service's log.")
    differences: list[dict[str, Any]] | None = Field(
        None, description="Of a namespace that is something else: field, registered, requested."
    )
    outcomes: list[dict[str, Any]] | None = Field(
        None, description="Of a store that broke off: what became of the records before that, as in its answer."
    )


def problem_response(error: ProblemError) -> Response:
    """The response of an error."""
    if error.field is not None:
        error.field = _placed(error.field)
    headers = {"Retry-After": str(RETRY_SECONDS)} if error.status in (429, 503) else {}
    return Response(msgspec.json.encode(problem_document(error)), error.status, headers | error.headers, MEDIA_TYPE)


def _placed(field: str) -> str:
    """A field's name with its place in the request; what has its place already, or is one, stays as it is."""
    return field if "." in field or field == "body" else _PLACES.get(field, f"body.{field}")


def install_handlers(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Make every error that can leave a handler of ``routes`` a problem document."""

    async def on_error(request: Request, error: Exception) -> Response:
        problem = _translate(error)
        if problem.status == 405:
            problem.headers["Allow"] = ", ".join(_methods(routes, request))
        return problem_response(problem)

    async def on_crash(request: Request, error: Exception) -> Response:
        response = await on_error(request, error)
        response.headers[HEADER] = request_id_in_force() or ""  # It does not come by the layer that sets it.
        return response

    for kind in (*KNOWN_ERRORS, RequestValidationError, HTTPException, ClientDisconnect):
        app.add_exception_handler(kind, on_error)
    app.add_exception_handler(Exception, on_crash)


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
        case RequestValidationError():
            return _from_validation(error)
        case HTTPException():
            if error.status_code == 404:
                return ProblemError(
                    404, "there is no such route; /openapi.json has them all", extra={"reason": NO_ROUTE}
                )
            return ProblemError(error.status_code, error.detail, headers=error.headers)
        case ClientDisconnect():
            return ProblemError(400, "the connection ended before the request was whole")
    return problem_of(error)


def _from_validation(error: RequestValidationError) -> ProblemError:
    fields = [
        {"field": ".".join(str(part) for part in problem["loc"]), "message": problem["msg"][:MAX_MESSAGE_CHARACTERS]}
        for problem in error.errors()
    ]
    return problem_of_fields(fields)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route's OpenAPI entry for the problems it may answer with."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": TITLES[status], "content": content} for status in statuses}
