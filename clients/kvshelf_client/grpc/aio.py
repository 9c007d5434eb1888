"""The gRPC transport for asyncio, over the channel for threads.

gRPC's own for asyncio serves one event loop a process: with a second one, calls end as cancelled now and then
(docs/decisions/0027). So what waits for one answer waits for its callback, and bulk is waited for by a thread of a
pool.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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


class AsyncGrpcTransport:
    """See :class:`~kvshelf_client.transport.AsyncTransport`. To be used on one event loop."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        self._channel = Channel(url, options)
        self._max_payload_bytes = options.max_payload_bytes
        self._threads = ThreadPoolExecutor(options.max_connections, thread_name_prefix="kvshelf-grpc")

    async def call(self, request: Request[T], deadline: Deadline) -> T:
        """See :meth:`AsyncTransport.call <kvshelf_client.transport.AsyncTransport.call>`."""
        try:
            return cast("T", await self._call(request, deadline))
        except grpc.RpcError as error:
            raise error_of(error, self._channel.where) from error

    async def _call(self, request: Request[Any], deadline: Deadline) -> Any:
        sent = encode(request)
        if isinstance(request, Fetch):
            return await self._finish(Download(self._channel, request, sent, deadline, self._max_payload_bytes))
        if isinstance(request, Store):
            return await self._finish(Upload(self._channel, request, sent, deadline))
        return sent.decode(await _answer_of(self._channel.ask(sent, deadline, request.call_id), deadline))

    async def _finish(self, bulk: Download | Upload) -> Any:
        """What bulk comes to. When the caller is cancelled, it is, and nothing of it goes on when this returns."""
        work = asyncio.get_running_loop().run_in_executor(self._threads, bulk.finish)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            bulk.cancel()
            await asyncio.wait([work])
            if not work.cancelled():
                work.exception()  # It is of no interest any more, and must not be reported as forgotten.
            raise

    async def close(self) -> None:
        """See :meth:`Transport.close <kvshelf_client.transport.Transport.close>`."""
        await asyncio.to_thread(self._channel.close)
        self._threads.shutdown(wait=False)


async def _answer_of(call: Any, deadline: Deadline) -> bytes | None:
    """The encoded answer of a call, waited for by the event loop's clock; the call is over when this returns."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def end(_: Any) -> None:
        """In gRPC's thread; a call that was given up may end when its event loop is closed."""
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(ended.set)

    call.add_done_callback(end)
    try:
        await asyncio.wait_for(ended.wait(), deadline.remaining_seconds)
    except TimeoutError:
        raise DeadlineError("no answer in time") from None
    finally:
        call.cancel()
    return cast("bytes | None", call.result())
