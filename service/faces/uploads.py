"""Take a stream of frames in, in batches, as it arrives: some are kept while the next one comes."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from functools import partial
from typing import Protocol

from kvshelf_client.errors import FrameError, HeaderChecksumError
from kvshelf_client.frames import AHEAD_BYTES, HEADER_BYTES, Arrival, FrameAssembler, FrameHeader, FrameKind
from kvshelf_client.words import MissReason
from service.faces.admission import Admitted
from service.faces.answers import outcome_document
from service.faces.context import Context
from service.faces.problems import ProblemError
from service.shelf.parts import Parts
from service.shelf.storing import Outcome, Upload, store

SLACK_BYTES = 64 << 10
"""A payload that is so much too large is still read and refused by itself; beyond that the stream is not worth it."""
BATCH_RECORDS = 64
BATCH_BYTES = 8 << 20
"""A batch is judged and written in one go: larger ones cost less, smaller ones begin earlier and hold less memory.

Where bytes are scarce, whole frames are one at once, so that nobody waits for room while holding what could be written.
"""
INTAKE_BYTES = 24 << 20
"""What all stores under way together may have in memory. Each has a fair share of it, one record at least."""
ALONE_BYTES = 32 << 20
"""What a store may have that is the only one: enough for the disk to be busy all the while."""


class Intake:
    """The frames of one store, as far as they have come.

    Args:
        context: has the tiers, and the count of stores under way.
        upload: whose namespace bounds a payload.
    """

    def __init__(self, context: Context, upload: Upload) -> None:
        namespace = upload.namespace
        self._context = context
        self._most = context.parts.settings.limits.max_store_records
        largest = max(namespace.shard_block_bytes, namespace.shard_snapshot_bytes) + SLACK_BYTES
        self._assembler = FrameAssembler(largest, partial(_allocate, context.parts))
        self._arrived: list[Arrival] = []
        self._arrived_bytes = 0
        self.count = 0
        """Whole frames so far."""

    @property
    def is_full(self) -> bool:
        """Whether what has arrived is a batch."""
        return len(self._arrived) >= BATCH_RECORDS or self._arrived_bytes >= self.batch_bytes

    @property
    def share_bytes(self) -> int:
        """What this store may have in memory: less, the more of them are under way."""
        stores = self._context.stores_under_way
        return INTAKE_BYTES // stores if stores > 1 else ALONE_BYTES

    @property
    def batch_bytes(self) -> int:
        """How many bytes are a batch: one must have room beside another that is being kept."""
        return min(BATCH_BYTES, self.share_bytes // 2)

    def take(self, *, in_full: bool) -> list[Arrival]:
        """A batch of what has arrived, or less where it is to be taken ``in_full``; nothing while there is none."""
        if not (self.is_full or in_full):
            return []
        taken, self._arrived = self._arrived[:BATCH_RECORDS], self._arrived[BATCH_RECORDS:]
        self._arrived_bytes -= sum(len(arrival.payload) for arrival in taken)
        return taken

    def room(self) -> list[memoryview]:
        """Where the next bytes go. See :meth:`FrameAssembler.room`."""
        return self._assembler.room(min(AHEAD_BYTES, self.batch_bytes // 2))

    def filled(self, count: int) -> None:
        """So many bytes are in :meth:`room`.

        Raises:
            FrameError: they are not what may come here. What was whole before them has arrived.
            ProblemError: there are more frames than a store may have.
        """
        for arrival in self._assembler.filled(count):
            self._add(arrival)

    def feed(self, chunk: bytes | memoryview) -> None:
        """Take bytes that are somewhere else. Raises as :meth:`filled`."""
        for arrival in self._assembler.feed(chunk):
            self._add(arrival)

    def end(self) -> None:
        """No more bytes come. Raises FrameError when there must be more."""
        if not self._assembler.at_boundary:
            raise FrameError("the body ends inside a frame")

    def _add(self, arrival: Arrival) -> None:
        if self.count == self._most:
            raise ProblemError(413, f"a store takes at most {self._most} records; send the rest in another")
        if arrival.header.kind is FrameKind.FALLBACK:
            raise FrameError("only blocks and snapshots can be stored")
        if arrival.header.miss is not None:
            raise FrameError("a frame that is marked as a miss holds nothing to store")
        self.count += 1
        self._arrived.append(arrival)
        self._arrived_bytes += len(arrival.payload)


def _allocate(parts: Parts, header: FrameHeader) -> memoryview:
    """Memory for a payload, of the tier that gets it.

    No method of an intake: its assembler has it, and with the two of them the last payload waited for the collector.
    """
    tier = parts.blocks if header.kind is FrameKind.BLOCK else parts.snapshots
    return tier.allocate(header.length_bytes)


class Supply(Protocol):
    """Where the bytes of a store come from."""

    async def fill(self, intake: Intake) -> bool:
        """Let bytes in, until it is full or more would have to be waited for; False at their end.

        Raises:
            FrameError, ProblemError: see :meth:`Intake.filled`.
        """
        ...


class Chunks:
    """Bytes that somebody else has received already.

    Args:
        chunks: pieces of any size.
    """

    def __init__(self, chunks: AsyncIterator[bytes | memoryview]) -> None:
        self._chunks = chunks

    async def fill(self, intake: Intake) -> bool:
        """See :meth:`Supply.fill`."""
        chunk = await anext(self._chunks, None)
        if chunk is not None:
            intake.feed(chunk)
        return chunk is not None


async def store_stream(context: Context, admitted: Admitted, upload: Upload, supply: Supply) -> list[Outcome]:
    """Store the frames of a stream that is cut anywhere; one outcome a record, in order.

    ``admitted`` has counted the bytes that come; those of whole frames are given back as they are stored.

    Raises:
        ProblemError: the stream is malformed or too long. What was whole before that is kept, and ``outcomes`` among
            its extra members says what became of it.
    """
    intake, outcomes = Intake(context, upload), list[Outcome]()
    keeping = _Keeping(context, admitted, upload, intake)
    context.stores_under_way += 1
    problem: ProblemError | None = None
    try:
        is_open = True
        while is_open:
            try:
                is_open = await supply.fill(intake)
                if not is_open:
                    intake.end()
            except FrameError as error:
                problem, is_open = _malformed(intake.count, error), False
            except ProblemError as error:
                problem, is_open = error, False
            while batch := intake.take(in_full=not is_open or admitted.should_hurry):
                outcomes += await keeping.begin(batch)
    finally:
        context.stores_under_way -= 1
        outcomes += await keeping.end()
    if problem is not None:
        problem.extra["outcomes"] = [outcome_document(outcome) for outcome in outcomes]
        raise problem
    return outcomes


class _Keeping:
    """The batches that are being kept, a few at a time: the medium is busy with one while the next one is judged."""

    def __init__(self, context: Context, admitted: Admitted, upload: Upload, intake: Intake) -> None:
        self._context, self._admitted, self._upload, self._intake = context, admitted, upload, intake
        self._under_way = deque[tuple[asyncio.Task[list[Outcome]], int]]()
        self._under_way_bytes = 0

    async def begin(self, batch: list[Arrival]) -> list[Outcome]:
        """Begin to keep a batch, once there is room beside it for the next; returns the outcomes of those before it
        that had to be waited for.
        """
        outcomes, size_bytes = list[Outcome](), sum(len(arrival.payload) for arrival in batch)
        while self._under_way and self._under_way_bytes + size_bytes > self._most_bytes:
            first, first_bytes = self._under_way.popleft()
            self._under_way_bytes -= first_bytes
            outcomes += await first
        self._under_way.append((asyncio.create_task(self._keep(batch, size_bytes)), size_bytes))
        self._under_way_bytes += size_bytes
        return outcomes

    async def end(self) -> list[Outcome]:
        """Wait for all that are left, and return their outcomes; whatever one of them raises is raised after that."""
        left = [task for task, _ in self._under_way]
        if left:
            await asyncio.wait(left)
        return [outcome for task in left for outcome in task.result()]

    @property
    def _most_bytes(self) -> int:
        return self._intake.share_bytes - self._intake.batch_bytes

    async def _keep(self, batch: list[Arrival], size_bytes: int) -> list[Outcome]:
        outcomes = await self._context.run(store, self._context.parts, self._upload, batch)
        self._admitted.release(HEADER_BYTES * len(batch) + size_bytes)
        return outcomes


def _malformed(count: int, error: FrameError) -> ProblemError:
    detail = f"after {count} records, whose outcomes are here too: {error}"
    reason = {"reason": MissReason.CORRUPT.value} if isinstance(error, HeaderChecksumError) else {}
    return ProblemError(400, detail, field="frames", extra=reason)
