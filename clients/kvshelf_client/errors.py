"""Every error this package raises. All derive from :class:`KvshelfError`."""


class KvshelfError(Exception):
    """Base of all errors of the client."""


class FrameError(KvshelfError):
    """Bytes that are no valid frame: wrong magic, version, checksum, kind or length. The stream ends there."""


class ServiceError(KvshelfError):
    """The service answered with a problem document (RFC 9457).

    ``status`` is the HTTP status, ``problem`` the decoded document (an empty dict when the body was none). ``retried``
    says that the request was sent twice, since the connection broke under it: the first one may have been done.
    """

    def __init__(self, status: int, problem: dict[str, object]) -> None:
        self.status = status
        self.problem = problem
        self.retried = False
        detail = problem.get("detail") or problem.get("title") or "no detail given"
        super().__init__(f"HTTP {status}: {detail}")


class UnreachableError(KvshelfError):
    """The service could not be reached, or the connection broke before the answer was whole."""


class AnswerError(KvshelfError):
    """The service's answer is not what its API promises: no JSON, or a field missing or of another type."""
