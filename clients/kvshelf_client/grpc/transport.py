"""The gRPC transport for threads."""

import threading
from typing import Any, TypeVar, cast

import grpc

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import DeadlineError
from kvshelf_client.grpc.bulk import Download, Upload
from kvshelf_client.grpc.channel import Channel
from kvshelf_client.grpc.codec import encode
from kvshelf_client.grpc.problems import error_of
from kvshelf_client.requests import Fetch, Request, Store
from kvshelf_client.transport import TransportOptions

T = TypeVar("T")


class GrpcTransport:
    """See :class:`~kvshelf_client.transport.Transport`."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        self._channel = Channel(url, options)
        self._max_payload_bytes = options.max_payload_bytes

    def call(self, request: Request[T], deadline: Deadline) -> T:
        """See :meth:`Transport.call <kvshelf_client.transport.Transport.call>`."""
        try:
            return cast("T", self._call(request, deadline))
        except grpc.RpcError as error:
            raise error_of(error, self._channel.where) from error

    def _call(self, request: Request[Any], deadline: Deadline) -> Any:
        sent = encode(request)
        if isinstance(request, Fetch):
            return Download(self._channel, request, sent, deadline, self._max_payload_bytes).finish()
        if isinstance(request, Store):
            return Upload(self._channel, request, sent, deadline).finish()
        return sent.decode(_answer_of(self._channel.ask(sent, deadline, request.call_id), deadline))

    def close(self) -> None:
        """See :meth:`Transport.close <kvshelf_client.transport.Transport.close>`."""
        self._channel.close()


def _answer_of(call: Any, deadline: Deadline) -> bytes | None:
    """The encoded answer of a call, waited for by the client's own clock, see :mod:`kvshelf_client.grpc.incoming`."""
    ended = threading.Event()
    call.add_done_callback(lambda _: ended.set())
    try:
        in_time = ended.wait(deadline.remaining_seconds)
    except BaseException:  # The caller was interrupted.
        call.cancel()
        raise
    if not in_time:
        call.cancel()
        raise DeadlineError("no answer in time")
    return cast("bytes | None", call.result())
