"""The gRPC transport for threads."""

import threading
from typing import Any, TypeVar, cast

import grpc

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import DeadlineError, UnreachableError
from kvshelf_client.grpc.channel import Channel, store_chunks
from kvshelf_client.grpc.chunks import read_frame_chunk
from kvshelf_client.grpc.codec import GrpcRequest, encode
from kvshelf_client.grpc.landing import FrameFeed
from kvshelf_client.grpc.problems import error_of
from kvshelf_client.requests import Fetch, Request, Store
from kvshelf_client.transport import TransportOptions

T = TypeVar("T")


class GrpcTransport:
    """See :class:`~kvshelf_client.transport.Transport`."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        self._channel = Channel(url, options, single_threaded=True)
        self._max_payload_bytes = options.max_payload_bytes
        self._places = threading.Semaphore(options.max_connections)

    def call(self, request: Request[T], deadline: Deadline) -> T:
        """See :meth:`Transport.call <kvshelf_client.transport.Transport.call>`."""
        sent = encode(request)
        if not self._places.acquire(timeout=deadline.remaining_seconds):
            raise DeadlineError("as many calls as allowed were under way until the time was up")
        try:
            return cast("T", self._call(request, sent, deadline))
        except grpc.RpcError as error:
            raise error_of(error, self._channel.where) from error
        except ValueError as error:
            raise UnreachableError(f"the client was closed: {error}") from error
        finally:
            self._places.release()

    def _call(self, request: Request[Any], sent: GrpcRequest, deadline: Deadline) -> Any:
        if isinstance(request, Fetch):
            return land(self._channel.download(sent, deadline, request.call_id), request, self._max_payload_bytes)
        arguments = self._channel.arguments(deadline, request.call_id)
        if isinstance(request, Store):
            answer = self._channel.upload(sent)(store_chunks(request, sent.message), **arguments)
        else:
            answer = self._channel.unary(sent)(sent.message, **arguments)
        return sent.decode(answer) if sent.decode else None

    def close(self) -> None:
        """See :meth:`Transport.close <kvshelf_client.transport.Transport.close>`."""
        self._channel.close()


def land(stream: Any, request: Fetch, max_payload_bytes: int) -> None:
    """Read a fetch into its sink. Whatever ends it early ends the call."""
    feed = FrameFeed(request.sink, max_payload_bytes)
    announced = received = 0
    try:
        for number, message in enumerate(stream):
            length_bytes, _, frames = read_frame_chunk(message)
            announced = length_bytes if number == 0 else announced
            received += len(frames)
            feed.feed(frames)
    except BaseException:  # The sink may have refused a frame, or the caller been interrupted.
        stream.cancel()
        raise
    feed.end()
    if received != announced:
        raise UnreachableError(f"{received} bytes of frames came, not {announced}")
