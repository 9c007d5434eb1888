"""The HTTP transport for threads."""

from typing import TypeVar, cast

from kvshelf_client.deadline import Deadline
from kvshelf_client.http.codec import encode
from kvshelf_client.http.connection import Connections, finishing
from kvshelf_client.http.fetching import read_frames
from kvshelf_client.requests import Fetch, Request
from kvshelf_client.transport import TransportOptions

T = TypeVar("T")


class HttpTransport:
    """See :class:`~kvshelf_client.transport.Transport`."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        self._connections = Connections(url, options.read_seconds)
        self._max_payload_bytes = options.max_payload_bytes

    def call(self, request: Request[T], deadline: Deadline) -> T:  # noqa: ARG002
        """See :meth:`Transport.call <kvshelf_client.transport.Transport.call>`."""
        sent = encode(request)
        headers = {**sent.headers, "content-length": str(sent.body_bytes)} if sent.method != "GET" else sent.headers
        answer = self._connections.call(sent.method, sent.target, sent.body, headers, retry=request.may_repeat)
        with finishing(answer):
            if isinstance(request, Fetch):
                read_frames(answer, request.sink, self._max_payload_bytes)
                return cast("T", None)
            body = answer.read()
        return cast("T", sent.decode(answer.status, body) if sent.decode else None)

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._connections.close()
