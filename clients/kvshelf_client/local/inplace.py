"""Blocks used where they are: no copy, for as long as their lease lives."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import NamedTuple

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import Fault, FrameError, KvshelfError
from kvshelf_client.frames import Frame, FrameHeader, checksum_of
from kvshelf_client.http.steps import wait
from kvshelf_client.local.loading import in_memory
from kvshelf_client.local.path import LocalPath, translated
from kvshelf_client.local.peer import Opened, Peer, RefusedError, header_of
from kvshelf_client.local.wire import CHECKSUM, GENERATION, LENGTH, OFFSET, Open
from kvshelf_client.request_ids import id_of_call
from kvshelf_client.requests import FindLocal
from kvshelf_client.steps import run
from kvshelf_client.transport import TransportOptions, transport_module
from kvshelf_client.words import MissReason

GENERATION_OFFSET = 112
"""A record's generation, 8 bytes little-endian, begins so many bytes before its payload."""


class LeaseLostError(KvshelfError):
    """The lease did not live to the end of the use: what was used may have been anything."""

    fault = Fault.UNKNOWN


class Block(NamedTuple):
    """A block that was found good. ``payload`` is in the file, or in memory of this process where it is not mapped."""

    header: FrameHeader
    payload: memoryview
    is_mapped: bool


class View(NamedTuple):
    """What a lease holds of one shard, in order. ``frames`` are what is no block: the snapshot, or the fallback plan.

    ``blocks`` end ahead of the first one that is not there: nothing behind it could be used. ``missing`` is why.
    """

    fell_back: bool
    frames: list[Frame]
    blocks: list[Block]
    missing: MissReason | None


class LocalReader:
    """Looks at what leases hold, in place. Threads may share it.

    Args:
        url: the service's HTTP address; the service says where the local path is.
        options: as for a transport.
    """

    def __init__(self, url: str, options: TransportOptions | None = None) -> None:
        self._options = options or TransportOptions()
        self._rest = transport_module(url).connect(url, self._options)
        self._path = LocalPath(self._options)

    def __enter__(self) -> "LocalReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of connections and mappings; a view that is open keeps its own."""
        self._path.close()
        self._rest.close()

    @contextmanager
    def view(
        self, lease_id: str, shard: int = 0, *, fallback: bool = False, budget_seconds: float = 2.0
    ) -> Iterator[View]:
        """What a lease holds of one shard, each block checked. Leaving the block makes sure that it stood still.

        Use the payloads inside the block alone, and believe what came of it only when the block was left without an
        error. They cannot be used after it. ``fallback`` asks for the fallback's blocks, the snapshot having been bad.

        Raises:
            UnreachableError: there is no local path, or it broke. DeadlineError: the time was up.
            ServiceError: 404 for a lease that is unknown, 422 for a shard.
            LeaseLostError: on leaving: the lease was over, or a record was erased; what was used may be anything.
        """
        deadline = Deadline(budget_seconds)
        if self._path.is_sought:
            self._path.found(self._rest.call(FindLocal(), deadline))
        peer, opened, view = self._look(Open(lease_id, shard, fallback, id_of_call()), deadline)
        is_over = False
        try:
            yield view
            self._confirm(lease_id, opened, view, peer, Deadline(budget_seconds))
            is_over = True
        finally:
            for block in view.blocks:
                with suppress(BufferError):  # Something was made of it that is still there. That is the caller's.
                    block.payload.release()
            if is_over:
                self._path.give_back(peer)
            else:
                peer.channel.close()

    def _look(self, ask: Open, deadline: Deadline) -> tuple[Peer, Opened, View]:
        peer: Peer | None = None
        try:
            peer = run(self._path.take(deadline), wait)
            collected = _Collected()
            opened = run(peer.open(ask, collected, self._path.segments, deadline), wait)
            blocks, missing = _check(ask.lease_id, opened, peer, deadline)
        except (OSError, FrameError, RefusedError) as error:
            if peer is not None:
                peer.channel.close()
            raise translated(error, deadline).about(ask.request_id) from error
        return peer, opened, View(opened.fell_back, collected.frames, blocks, missing)

    def _confirm(self, lease_id: str, opened: Opened, view: View, peer: Peer, deadline: Deadline) -> None:
        """The same service says that the lease lives, so it has lived; and no record has been erased."""
        try:
            run(peer.renew(lease_id, deadline), wait)
        except (OSError, FrameError, RefusedError) as error:
            raise LeaseLostError(f"whether lease {lease_id} has lived is not known: {error}") from error
        for number, block in enumerate(view.blocks):
            if block.is_mapped and not _is_there(opened, number):
                raise LeaseLostError(f"block {number} of lease {lease_id} was erased while it was used")


def _check(lease_id: str, opened: Opened, peer: Peer, deadline: Deadline) -> tuple[list[Block], MissReason | None]:
    """The blocks up to the first one that is not there, and why it is not."""
    blocks: list[Block] = []
    for number, is_near in enumerate(in_memory(opened)):
        one = opened.ranges[number]
        payload = opened.segments[number].view(one[OFFSET], one[LENGTH])
        if is_near and checksum_of(payload) == one[CHECKSUM]:
            blocks.append(Block(header_of(one), payload, True))
            continue
        collected = _Collected()
        run(peer.read(lease_id, opened, range(number, number + 1), collected, deadline), wait)
        (frame,) = collected.frames
        if frame.header.miss is not None:
            return blocks, frame.header.miss
        blocks.append(Block(frame.header, memoryview(frame.payload).toreadonly(), False))
    return blocks, None


def _is_there(opened: Opened, number: int) -> bool:
    """Whether the record's header still has the generation that was leased. Erasing begins with the header."""
    one = opened.ranges[number]
    found = opened.segments[number].view(one[OFFSET] - GENERATION_OFFSET, 8)
    return int.from_bytes(found, "little") == one[GENERATION]


class _Collected:
    """A sink that keeps frames; one that does not fit its checksum is a miss."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def restart(self) -> None:
        """See :class:`Sink <kvshelf_client.transport.Sink>`."""
        self.frames.clear()

    def begin(self, header: FrameHeader) -> memoryview:
        """See :class:`Sink <kvshelf_client.transport.Sink>`."""
        self.frames.append(Frame(header, bytearray(header.length_bytes)))
        return memoryview(self.frames[-1].payload)

    def end(self) -> bool:
        """See :class:`Sink <kvshelf_client.transport.Sink>`."""
        header, payload = self.frames[-1]
        if header.miss is None and checksum_of(payload) != header.checksum:
            self.frames[-1] = Frame(header._replace(miss=MissReason.CORRUPT), payload)
        return self.frames[-1].header.miss is None
