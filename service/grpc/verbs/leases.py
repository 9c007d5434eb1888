"""Use a lease: fetch what it holds, keep it alive, release it."""

import asyncio
from collections.abc import AsyncGenerator, Iterator

from kvshelf_client.grpc.chunks import CHUNK_BYTES, pack_frame_chunk
from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from service.faces.answers import fallback_json, sources_document
from service.faces.problems import ProblemError
from service.grpc import messages
from service.grpc.call import Call
from service.leases.lease import RanPlan
from service.shelf.fetching import Fetch, open_fetch
from service.shelf.finishing import finish
from storage.base import Payload


async def fetch(call: Call, request: pb.FetchRequest) -> AsyncGenerator[bytes, None]:
    """Stream what is leased as frames. A caller that leaves early keeps the lease, and can fetch again."""
    shard = request.shard if request.HasField("shard") else None
    opened = await call.context.run(
        open_fetch,
        call.context.parts,
        call.principal.tenant,
        request.lease_id,
        shard,
        fallback_json,
        fall_back=request.fallback,
    )
    async for message in read_ahead(call, frame_messages(opened)):
        yield message


async def read_ahead(call: Call, messages: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Send a message while the next one is read and put together in a worker thread."""
    upcoming = asyncio.ensure_future(call.context.run(next, messages, None))
    try:
        while (message := await upcoming) is not None:
            upcoming = asyncio.ensure_future(call.context.run(next, messages, None))
            yield message
    finally:
        upcoming.cancel()


def frame_messages(opened: Fetch) -> Iterator[bytes]:
    """A fetch as encoded messages of at most ``CHUNK_BYTES`` of frames; at least one. Blocks as the fetch does."""
    chunks = chunks_of(opened.batches)
    yield pack_frame_chunk(next(chunks, ()), length_bytes=opened.length_bytes, fell_back=opened.fell_back)
    yield from map(pack_frame_chunk, chunks)


def chunks_of(batches: Iterator[list[Payload]]) -> Iterator[list[Payload]]:
    """Buffers again and again of about ``CHUNK_BYTES``, never above; a larger buffer is cut."""
    chunk: list[Payload] = []
    room = CHUNK_BYTES
    for batch in batches:
        for buffer in batch:
            rest = memoryview(buffer)
            while rest:
                part, rest = rest[:room], rest[room:]
                chunk.append(part)
                room -= len(part)
                if not room:
                    yield chunk
                    chunk, room = [], CHUNK_BYTES
        if chunk:
            yield chunk
            chunk, room = [], CHUNK_BYTES


async def renew(call: Call, request: pb.RenewRequest) -> pb.Lease:
    """Give a lease its whole life again."""
    with call.context.parts.leases.use(call.principal.tenant, request.lease_id) as lease:
        return messages.lease(lease)


async def release(call: Call, request: pb.ReleaseRequest) -> pb.ReleaseResponse:
    """End a request: its tokens are counted by source, once a request id, and the life of what it used is renewed."""
    try:
        ran = RanPlan(request.ran) if request.HasField("ran") else RanPlan.PLAN
    except ValueError:
        known = ", ".join(RanPlan)
        raise ProblemError(422, f"ran is one of {known}, got {request.ran[:64]!r}", field="ran") from None
    parts = call.context.parts
    layout, plan = await call.context.run(finish, parts, call.principal.tenant, request.lease_id, ran)
    return pb.ReleaseResponse(tokens_by_source=sources_document(layout, plan))
