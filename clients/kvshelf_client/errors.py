"""Every error this package raises. All derive from :class:`KvshelfError`, and each says which :class:`Fault` it is.

A client that is not strict raises none of them: its answers carry the fault instead.
"""

from enum import Enum

NO_ROUTE = "no_route"
"""The reason of a 404 that is about the address, and not about a lease or a namespace."""
_NOT_FOUND = 404


class Fault(str, Enum):
    """Why a call came to nothing. The words are those of the counters."""

    TIMEOUT = "timeout"
    """The time budget was over."""
    UNREACHABLE = "unreachable"
    """No connection, or it broke before the answer was whole; or the service failed (500, 502, 504)."""
    BREAKER_OPEN = "breaker_open"
    """Nothing was sent: the calls before came to nothing, and it is not yet time to try again."""
    MALFORMED = "malformed"
    """The answer is not what the API promises."""
    VERSION = "version"
    """The service speaks another version of the wire format."""
    BUSY = "busy"
    """The service has no room for it now, is stopping, or waits for a tier (429, 503, 507)."""
    UNKNOWN = "unknown"
    """The service knows no such lease or namespace (404), or another namespace of that name."""
    DENIED = "denied"
    """The token is missing, wrong, or not for this (401, 403)."""
    CORRUPT = "corrupt"
    """A payload did not match its checksum."""
    MISS = "miss"
    """A record was not there, so nothing behind it was fetched."""
    REFUSED = "refused"
    """Anything else the service answered with an error: most likely a mistake in how it is used."""


class KvshelfError(Exception):
    """Base of all errors of the client. After a few outages in a row the service is left alone for a while.

    ``is_outage`` says whether it counts as one; ``is_in_doubt`` that the service had too little time to tell.
    ``request_id`` is what the call is called in the service's log, None where it was none.
    """

    fault = Fault.MALFORMED
    is_outage = True
    is_in_doubt = False
    request_id: str | None = None

    def about(self, request_id: str) -> "KvshelfError":
        """The same error, of the call of that id."""
        self.request_id = request_id
        return self

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.request_id is None else f"{text} [request id {self.request_id}]"


class FrameError(KvshelfError):
    """Bytes that are no valid frame: wrong magic, version, checksum, kind or length. The stream ends there."""


class WireVersionError(FrameError):
    """A frame of another version of the wire format."""

    fault = Fault.VERSION


class HeaderChecksumError(FrameError):
    """A frame's header that does not match its checksum."""


class MissError(KvshelfError):
    """A record that a plan loads is not there; ``reason`` says why."""

    fault = Fault.MISS
    is_outage = False

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"a record is not there: {reason}")


class ChecksumError(MissError):
    """A payload does not match its checksum."""

    fault = Fault.CORRUPT


class ServiceError(KvshelfError):
    """The service answered with an error.

    Args:
        status: the HTTP status; other transports give the one that REST would.
        problem: the problem document (RFC 9457), empty when there was none.
        retry_after_seconds: when to ask again, if the service said so.
    """

    def __init__(self, status: int, problem: dict[str, object], retry_after_seconds: float | None = None) -> None:
        self.status = status
        self.problem = problem
        self.retry_after_seconds = retry_after_seconds
        is_no_api = status == _NOT_FOUND and problem.get("reason") == NO_ROUTE
        self.fault = Fault.REFUSED if is_no_api else _FAULTS.get(status, Fault.REFUSED)
        self.is_outage = self.fault is Fault.UNREACHABLE
        detail = problem.get("detail") or problem.get("title") or "no detail given"
        super().__init__(f"HTTP {status}: {detail}")


class UnreachableError(KvshelfError):
    """The service could not be reached, or the connection broke before the answer was whole."""

    fault = Fault.UNREACHABLE


class DeadlineError(KvshelfError):
    """The time for a call was over before its answer was whole."""

    fault = Fault.TIMEOUT


class BreakerOpenError(KvshelfError):
    """Nothing was sent: the calls before came to nothing, and it is not yet time to try again."""

    fault = Fault.BREAKER_OPEN
    is_outage = False


class AnswerError(KvshelfError):
    """The service's answer is not what its API promises: no JSON, or a field missing or of another type."""


class StaleNamespaceError(KvshelfError):
    """The service has another namespace of that name: what the engine made keys of is not what is asked about."""

    fault = Fault.UNKNOWN
    is_outage = False


_FAULTS = {
    401: Fault.DENIED,
    403: Fault.DENIED,
    404: Fault.UNKNOWN,
    429: Fault.BUSY,
    500: Fault.UNREACHABLE,
    502: Fault.UNREACHABLE,
    503: Fault.BUSY,
    504: Fault.UNREACHABLE,
    507: Fault.BUSY,
}
