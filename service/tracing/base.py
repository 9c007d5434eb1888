"""The contract of tracing: what faces and metrics ask for, whether or not OpenTelemetry is there."""

from contextlib import AbstractContextManager
from typing import Protocol

from prometheus_client import Histogram


class RequestSpan(Protocol):
    """The span of one request, while it is answered."""

    def answered(self, status: str, *, is_failure: bool) -> None:
        """What it was answered with: an HTTP status, or the name of a gRPC one."""
        ...

    def renamed(self, name: str) -> None:
        """What it turned out to be."""
        ...


class Tracing(Protocol):
    """Makes spans. Thread-safe."""

    def request(self, name: str, face: str, parent: dict[str, str]) -> AbstractContextManager[RequestSpan]:
        """A span for a request, below the caller's of ``traceparent`` in ``parent`` if there is one."""
        ...

    def timed(self, histogram: Histogram, labels: tuple[str, ...]) -> Histogram:
        """The same histogram, with those labels; what is timed with it is a span, too, named by their values."""
        ...

    def close(self) -> None:
        """Send off what is left, within a few seconds, and end."""
        ...
