"""The gRPC transport: ``grpc://`` and ``grpcs://``. Needs the extra ``kvshelf-client[grpc]``."""

from kvshelf_client.grpc.aio import AsyncGrpcTransport
from kvshelf_client.grpc.transport import GrpcTransport
from kvshelf_client.transport import TransportOptions


def connect(url: str, options: TransportOptions) -> GrpcTransport:
    """See :class:`~kvshelf_client.transport.TransportModule`."""
    return GrpcTransport(url, options)


def connect_async(url: str, options: TransportOptions) -> AsyncGrpcTransport:
    """See :class:`~kvshelf_client.transport.TransportModule`."""
    return AsyncGrpcTransport(url, options)
