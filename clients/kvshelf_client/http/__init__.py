"""The HTTP transport: ``http://`` and ``https://``, the REST face, with the local path beside it where there is one."""

import sys

from kvshelf_client.http.transport import HttpTransport
from kvshelf_client.transport import AsyncTransport, Transport, TransportOptions


def connect(url: str, options: TransportOptions) -> Transport:
    """See :class:`~kvshelf_client.transport.TransportModule`."""
    rest = HttpTransport(url, options)
    if not options.local or sys.platform != "linux":
        return rest
    from kvshelf_client.local.transport import LocalTransport  # It would not import elsewhere.

    return LocalTransport(rest, options)


def connect_async(url: str, options: TransportOptions) -> AsyncTransport:
    """See :class:`~kvshelf_client.transport.TransportModule`."""
    from kvshelf_client.http.aio import AsyncHttpTransport  # Importing asyncio takes longer than all the rest.

    rest = AsyncHttpTransport(url, options)
    if not options.local or sys.platform != "linux":
        return rest
    from kvshelf_client.local.aio import AsyncLocalTransport

    return AsyncLocalTransport(rest, options)
