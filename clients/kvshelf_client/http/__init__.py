"""The HTTP transport: ``http://`` and ``https://``, the REST face."""

from kvshelf_client.http.transport import HttpTransport
from kvshelf_client.transport import AsyncTransport, TransportOptions


def connect(url: str, options: TransportOptions) -> HttpTransport:
    """See :class:`~kvshelf_client.transport.TransportModule`."""
    return HttpTransport(url, options)


def connect_async(url: str, options: TransportOptions) -> AsyncTransport:
    """See :class:`~kvshelf_client.transport.TransportModule`."""
    from kvshelf_client.http.aio import AsyncHttpTransport  # Importing asyncio takes longer than all the rest.

    return AsyncHttpTransport(url, options)
