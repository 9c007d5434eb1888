"""The HTTP transport for threads."""

from typing import TypeVar

from kvshelf_client.deadline import Deadline
from kvshelf_client.http.exchange import Exchanges
from kvshelf_client.http.steps import wait
from kvshelf_client.requests import Request
from kvshelf_client.steps import run
from kvshelf_client.transport import TransportOptions

T = TypeVar("T")


class HttpTransport:
    """See :class:`~kvshelf_client.transport.Transport`."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        self._exchanges = Exchanges(url, options)

    def call(self, request: Request[T], deadline: Deadline) -> T:
        """See :meth:`Transport.call <kvshelf_client.transport.Transport.call>`."""
        return run(self._exchanges.call(request, deadline), wait)

    def close(self) -> None:
        """See :meth:`Transport.close <kvshelf_client.transport.Transport.close>`."""
        self._exchanges.close()
