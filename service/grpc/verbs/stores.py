"""Take a stream of frames in and say what became of each record."""

from collections.abc import AsyncIterator

from google.protobuf.message import DecodeError

from kvshelf_client.errors import FrameError
from kvshelf_client.frames import KEY_BYTES
from kvshelf_client.grpc.chunks import read_store_chunk
from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from service.faces.admission import Admitted
from service.faces.answers import store_document
from service.faces.problems import ProblemError
from service.faces.uploads import Chunks, store_stream
from service.grpc import messages
from service.grpc.call import Call
from service.shelf.storing import UNKNOWN_PLAN, Upload, ran_plan

MAX_CHUNK_BYTES = 4 << 20
"""A larger message would be memory that is taken before anything of it is looked at."""


async def store(call: Call, chunks: AsyncIterator[bytes]) -> pb.StoreResponse:
    """Store a stream of frames, one outcome a record. A refused record costs the others nothing.

    When the stream breaks off, what was whole before that is kept.
    """
    parts = call.context.parts
    start, first = await _start(chunks)
    namespace = parts.namespaces.get_writable(call.principal, start.namespace)
    supersedes = start.supersedes if start.HasField("supersedes") else None
    if supersedes is not None and len(supersedes) != KEY_BYTES:
        raise ProblemError(422, f"supersedes takes {KEY_BYTES} bytes, got {len(supersedes)}", field="supersedes")
    ran = ran_plan(parts, call.principal.tenant, namespace, start.plan_id or None)
    upload = Upload(namespace, ran, not start.relaxed, supersedes)
    supply = Chunks(_frames(call.admitted, first, chunks))
    outcomes = await store_stream(call.context, call.admitted, upload, supply)
    return messages.store(store_document(outcomes, plan_known=ran is not None and ran is not UNKNOWN_PLAN))


async def _start(chunks: AsyncIterator[bytes]) -> tuple[pb.StoreStart, memoryview]:
    """What the first message says, and the frames in it."""
    encoded, frames = _read(await anext(chunks, b""))
    if encoded is None:
        raise ProblemError(422, "the first message of a store has its start", field="start")
    try:
        return pb.StoreStart.FromString(encoded), frames
    except DecodeError as error:
        raise ProblemError(400, f"the start is no StoreStart: {error}", field="start") from None


async def _frames(admitted: Admitted, first: memoryview, chunks: AsyncIterator[bytes]) -> AsyncIterator[memoryview]:
    await admitted.hold(len(first))
    yield first
    async for message in chunks:
        encoded, frames = _read(message)
        if encoded is not None:
            raise ProblemError(422, "only the first message of a store has a start", field="start")
        await admitted.hold(len(frames))
        yield frames


def _read(message: bytes) -> tuple[bytes | None, memoryview]:
    if len(message) > MAX_CHUNK_BYTES:
        raise ProblemError(413, f"a message of a store takes at most {MAX_CHUNK_BYTES} bytes", field="frames")
    try:
        return read_store_chunk(message)
    except FrameError as error:
        raise ProblemError(400, f"{error}", field="frames") from None
