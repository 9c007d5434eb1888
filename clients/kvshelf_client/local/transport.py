"""The local transport: fetches over the local path while there is one; everything else, and then too, another way."""

from typing import TypeVar

from kvshelf_client.deadline import Deadline, Monotonic, monotonic
from kvshelf_client.errors import KvshelfError, ServiceError
from kvshelf_client.http.steps import wait
from kvshelf_client.local.path import LAST_PAUSE_SECONDS, LocalPath
from kvshelf_client.requests import Fetch, FindLocal, Request
from kvshelf_client.steps import run
from kvshelf_client.transport import Transport, TransportOptions

T = TypeVar("T")

_NOT_FOUND = 404


class LocalTransport:
    """See :class:`~kvshelf_client.transport.Transport`.

    Args:
        rest: reaches the same service another way; closed with this one.
        options: those of ``rest``.
        clock: says when to try the local path again.
    """

    def __init__(self, rest: Transport, options: TransportOptions, clock: Monotonic = monotonic) -> None:
        self._rest = rest
        self._options = options
        self.path = LocalPath(options, clock)

    def call(self, request: Request[T], deadline: Deadline) -> T:
        """See :meth:`Transport.call <kvshelf_client.transport.Transport.call>`."""
        if isinstance(request, Fetch):
            if self.path.is_sought:
                try:
                    self.path.found(self._rest.call(FindLocal(), deadline.within(self._options.connect_seconds)))
                except KvshelfError as error:
                    self.path.put_off(pause_after(error))
            if self.path.is_there and run(self.path.fetch(request, deadline), wait):
                return None  # type: ignore[return-value]
        return self._rest.call(request, deadline)

    def close(self) -> None:
        """See :meth:`Transport.close <kvshelf_client.transport.Transport.close>`."""
        self.path.close()
        self._rest.close()


def pause_after(error: KvshelfError) -> float:
    """A service that has no local path will have none in a moment either."""
    return LAST_PAUSE_SECONDS if isinstance(error, ServiceError) and error.status == _NOT_FOUND else 0.0
