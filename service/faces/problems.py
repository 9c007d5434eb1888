"""Every error that a caller sees: what is wrong, in which field, and how to mend it. Each face says it in its way."""

from collections.abc import Mapping
from typing import Any

import structlog

from service.access import AccessDeniedError, ScopeError
from service.erasure.book import ErasureLimitError, UnknownErasureError
from service.erasure.scope import ScopeFieldError
from service.leases.book import LeaseLimitError, UnknownLeaseError
from service.namespaces import NamespaceConflictError, NamespaceError, NamespaceLimitError, UnknownNamespaceError
from service.planner import InvalidRequestError
from service.profiles import ProfileError
from service.request_ids import request_id_in_force
from service.shelf.fetching import NoSuchShardError
from service.shelf.records import TierDownError
from storage.catalog import CatalogError

RETRY_SECONDS = 1
MAX_MESSAGE_CHARACTERS = 300
"""What a message may repeat of the input that it is about."""
STOPPING = "the service is stopping; ask again when it is back, and take it as a miss until then"

_LOG = structlog.get_logger("kvshelf.faces")
TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    411: "Length required",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported media type",
    416: "Range not satisfiable",
    421: "Misdirected request",
    422: "Invalid input",
    429: "Too many requests",
    431: "Request header fields too large",
    500: "Internal error",
    503: "Unavailable",
    507: "Insufficient storage",
}


class ProblemError(Exception):
    """Raise it anywhere in a face to answer with a problem.

    ``status`` is an HTTP status, whatever the face. ``field`` is the name of what is wrong. ``extra`` members are added
    to the document, ``headers`` to an HTTP response.
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


KNOWN_ERRORS = (
    ProblemError,
    AccessDeniedError,
    ScopeError,
    UnknownLeaseError,
    LeaseLimitError,
    UnknownNamespaceError,
    NamespaceLimitError,
    NamespaceConflictError,
    CatalogError,
    UnknownErasureError,
    ErasureLimitError,
    ScopeFieldError,
    InvalidRequestError,
    NamespaceError,
    ProfileError,
    NoSuchShardError,
    TierDownError,
)
"""What the verbs raise for a caller to see."""


def problem_document(error: ProblemError) -> dict[str, Any]:
    """The problem document (RFC 9457) of an error, with the id of the request that is being answered."""
    request_id = request_id_in_force()
    return {
        "type": "about:blank",
        "title": TITLES.get(error.status, "Error"),
        "status": error.status,
        "detail": error.detail,
        "errors": [{"field": error.field, "message": error.detail}] if error.field else [],
        **({} if request_id is None else {"request_id": request_id}),
    } | error.extra


def problem_of(error: Exception) -> ProblemError:
    """The problem that an error of the verbs is for the caller. One that nobody expected is logged."""
    match error:
        case ProblemError():
            return error
        case AccessDeniedError():
            return ProblemError(401, str(error))
        case ScopeError():
            return ProblemError(403, str(error))
        case UnknownLeaseError():
            return ProblemError(404, f"no lease {error}: it was released or its time is over; ask for a plan again")
        case LeaseLimitError():
            return ProblemError(503, f"{error}; release leases or raise lease.max_leases and lease.max_records")
        case UnknownNamespaceError():
            return ProblemError(404, str(error))
        case NamespaceLimitError():
            return ProblemError(507, str(error))
        case CatalogError():
            return ProblemError(507 if error.is_full else 503, str(error))
        case UnknownErasureError():
            return ProblemError(404, f"no erasure {error}")
        case ErasureLimitError():
            return ProblemError(503, f"{error}; ask again when some are done")
        case ScopeFieldError():
            return ProblemError(422, str(error), field=error.field)
        case NamespaceConflictError():
            return _from_conflict(error)
        case InvalidRequestError() | NamespaceError():
            return ProblemError(422, str(error), field=error.field)
        case ProfileError():
            return ProblemError(422, str(error), field="profile")
        case NoSuchShardError():
            return ProblemError(422, str(error), field="shard")
        case TierDownError():
            return ProblemError(
                503, f"{error}; what is there will be known when it does", extra={"reason": "tier_down"}
            )
    _LOG.error("unexpected_error", exc_info=error)
    return ProblemError(500, "something unexpected happened; the log has it under event unexpected_error")


def too_large(limit_bytes: int, setting: str = "") -> ProblemError:
    """The problem of a request whose body is over its bound, which follows from a ``setting``."""
    why = f", which follows from {setting}" if setting else ""
    return ProblemError(413, f"the body is over the limit of {limit_bytes} bytes{why}")


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
