"""Take a stream of frames in, in batches, as it arrives."""

from collections.abc import AsyncIterator

from kvshelf_client.errors import FrameError, HeaderChecksumError
from kvshelf_client.frames import HEADER_BYTES, Frame, FrameAssembler, FrameKind
from kvshelf_client.words import MissReason
from service.faces.admission import Admitted
from service.faces.answers import outcome_document
from service.faces.context import Context
from service.faces.problems import ProblemError
from service.shelf.storing import Outcome, Upload, store

SLACK_BYTES = 64 << 10
"""A payload that is so much too large is still read and refused by itself; beyond that the stream is not worth it."""
BATCH_RECORDS = 64
BATCH_BYTES = 16 << 20
"""A batch is one commit: larger ones sync less often, smaller ones hold less memory.

Where bytes are scarce, each whole frame is one, so that nobody waits for room while holding what could be written.
"""


async def store_stream(
    context: Context, admitted: Admitted, upload: Upload, chunks: AsyncIterator[bytes | memoryview]
) -> list[Outcome]:
    """Store the frames of a stream that is cut anywhere; one outcome a record, in order.

    ``admitted`` has counted the bytes of the chunks; those of whole frames are given back as they are stored.

    Raises:
        ProblemError: the stream is malformed or too long. What was whole before that is kept, and ``outcomes`` among
            its extra members says what became of it.
    """
    namespace = upload.namespace
    assembler = FrameAssembler(max(namespace.shard_block_bytes, namespace.shard_snapshot_bytes) + SLACK_BYTES)
    outcomes: list[Outcome] = []
    try:
        async for batch in _batches(chunks, assembler, admitted, context.parts.settings.limits.max_store_records):
            frames = [(frame.header, frame.payload) for frame in batch]
            outcomes += await context.run(store, context.parts, upload, frames)
            admitted.release(sum(HEADER_BYTES + len(frame.payload) for frame in batch))
    except ProblemError as error:
        error.extra["outcomes"] = [outcome_document(outcome) for outcome in outcomes]
        raise
    return outcomes


async def _batches(
    chunks: AsyncIterator[bytes | memoryview], assembler: FrameAssembler, admitted: Admitted, most: int
) -> AsyncIterator[list[Frame]]:
    """Whole batches as they arrive. A malformed stream yields what was whole, then raises a 400."""
    batch: list[Frame] = []
    count = size = 0
    problem: ProblemError | None = None
    try:
        async for chunk in chunks:
            for frame in assembler.feed(chunk):
                if count == most:
                    raise ProblemError(413, f"a store takes at most {most} records; send the rest in another")
                _check_kind(frame)
                count += 1
                batch.append(frame)
                size += len(frame.payload)
                if len(batch) >= BATCH_RECORDS or size >= BATCH_BYTES or admitted.should_hurry:
                    yield batch
                    batch, size = [], 0
        if not assembler.at_boundary:
            raise FrameError("the body ends inside a frame")
    except FrameError as error:
        detail = f"after {count} records, whose outcomes are here too: {error}"
        reason = {"reason": MissReason.CORRUPT.value} if isinstance(error, HeaderChecksumError) else {}
        problem = ProblemError(400, detail, field="frames", extra=reason)
    except ProblemError as error:
        problem = error
    if batch:
        yield batch
    if problem is not None:
        raise problem


def _check_kind(frame: Frame) -> None:
    if frame.header.kind is FrameKind.FALLBACK:
        raise FrameError("only blocks and snapshots can be stored")
    if frame.header.miss is not None:
        raise FrameError("a frame that is marked as a miss holds nothing to store")
