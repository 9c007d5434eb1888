"""The gRPC transport for asyncio, over the channel for threads.

gRPC's own for asyncio serves one event loop a process: with a second one, calls end as cancelled now and then
(docs/decisions/0027). So what waits for one answer waits for its callback, and a fetch is read by a thread of a pool.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import grpc

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import DeadlineError, UnreachableError
from kvshelf_client.grpc.channel import Channel, store_chunks
from kvshelf_client.grpc.codec import GrpcRequest, encode
from kvshelf_client.grpc.problems import error_of
from kvshelf_client.grpc.transport import land
from kvshelf_client.requests import Fetch, Request, Store
from kvshelf_client.transport import TransportOptions

T = TypeVar("T")


class AsyncGrpcTransport:
    """See :class:`~kvshelf_client.transport.AsyncTransport`. To be used on one event loop."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        self._channel = Channel(url, options, single_threaded=False)
        self._max_payload_bytes = options.max_payload_bytes
        self._places = asyncio.Semaphore(options.max_connections)
        self._threads = ThreadPoolExecutor(options.max_connections, thread_name_prefix="kvshelf-grpc")

    async def call(self, request: Request[T], deadline: Deadline) -> T:
        """See :meth:`AsyncTransport.call <kvshelf_client.transport.AsyncTransport.call>`."""
        sent = encode(request)
        try:
            await asyncio.wait_for(self._places.acquire(), deadline.remaining_seconds)
        except TimeoutError:
            raise DeadlineError("as many calls as allowed were under way until the time was up") from None
        try:
            return cast("T", await self._call(request, sent, deadline))
        except grpc.RpcError as error:
            raise error_of(error, self._channel.where) from error
        except ValueError as error:
            raise UnreachableError(f"the client was closed: {error}") from error
        finally:
            self._places.release()

    async def _call(self, request: Request[Any], sent: GrpcRequest, deadline: Deadline) -> Any:
        if isinstance(request, Fetch):
            stream = self._channel.download(sent, deadline, request.call_id)
            reading = asyncio.get_running_loop().run_in_executor(
                self._threads, land, stream, request, self._max_payload_bytes
            )
            return await _or_cancel(reading, stream.cancel)
        arguments = self._channel.arguments(deadline, request.call_id)
        if isinstance(request, Store):
            call = self._channel.upload(sent).future(store_chunks(request, sent.message), **arguments)
        else:
            call = self._channel.unary(sent).future(sent.message, **arguments)
        answer = await _or_cancel(_ended(call), call.cancel)
        return sent.decode(answer) if sent.decode else None

    async def close(self) -> None:
        """See :meth:`Transport.close <kvshelf_client.transport.Transport.close>`."""
        self._channel.close()
        self._threads.shutdown(wait=False)


async def _or_cancel(work: "asyncio.Future[Any]", cancel: Callable[[], Any]) -> Any:
    """What work comes to. When the caller is cancelled, the call is, and nothing of it goes on when this returns."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        cancel()
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # It is of no interest any more, and must not be reported as forgotten.
        raise


def _ended(call: Any) -> "asyncio.Future[Any]":
    """A future of this event loop for the end of a call."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def settle() -> None:
        """Let the future have what the call came to: its answer, its error, or that its client was closed."""
        if call.cancelled():
            ended.set_exception(UnreachableError("the client was closed"))
        elif call.exception() is not None:
            ended.set_exception(call.exception())
        else:
            ended.set_result(call.result())

    call.add_done_callback(lambda _: loop.call_soon_threadsafe(settle))
    return ended
