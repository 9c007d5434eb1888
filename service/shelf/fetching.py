"""Answer a fetch: the records a lease holds, as frames, read in batches as they are sent."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from kvshelf_client.frames import HEADER_BYTES, FrameHeader, FrameKind, checksum_of, pack_fields, pack_header
from kvshelf_client.words import MissReason, Provenance
from service.leases.book import UnknownLeaseError
from service.leases.lease import Lease
from service.planner.base import Load
from service.shelf.early import EarlyFrame, OnHead
from service.shelf.parts import Parts
from service.shelf.superseding import Superseded, retire, superseded_by
from storage.base import Entry, Loaded, Miss, Payload

BATCH_BYTES = 1 << 20
"""Payload bytes read and sent at a time: smaller costs system calls, larger memory and copies in the kernel."""
BATCH_RECORDS = 128
AHEAD_BATCHES = 10
"""Batches that are read ahead of the one that is being sent: what keeps the disk busy while a client takes bytes."""


class Announced(NamedTuple):
    """The blocks a fetch has announced. Their places and lengths stand, whatever becomes of the lease meanwhile.

    ``keys`` and each shard's ``entries`` are of the same blocks; the first starts at ``start_tokens`` of the prompt and
    is at ``position`` of each shard's hold.
    """

    owner: str | None
    lease_id: str
    position: int
    start_tokens: int
    block_tokens: int
    keys: Sequence[bytes]
    entries: dict[int, list[Entry | Miss]]

    @property
    def length_bytes(self) -> int:
        """Their frames together."""
        return sum(
            HEADER_BYTES + entry.length_bytes
            for entries in self.entries.values()
            for entry in entries
            if isinstance(entry, Entry)
        )

    def part(self, numbers: range) -> "Announced":
        """Some of these blocks alone, by number."""
        return self._replace(
            position=self.position + numbers.start,
            start_tokens=self.start_tokens + numbers.start * self.block_tokens,
            keys=self.keys[numbers.start : numbers.stop],
            entries={shard: entries[numbers.start : numbers.stop] for shard, entries in self.entries.items()},
        )


class Opening(NamedTuple):
    """What a fetch sends: ``head`` are the frames of the snapshots, or of the fallback plan where it ``fell_back``.

    The ``superseded`` snapshots are to be retired when all was sent.
    """

    fell_back: bool
    head: list[Payload]
    blocks: Announced
    superseded: Sequence[Superseded] = ()

    @property
    def length_bytes(self) -> int:
        """What is sent in all."""
        return sum(map(len, self.head)) + self.blocks.length_bytes


class Batches(Iterator[list[Payload]]):
    """What a fetch sends, in batches: the head, then the blocks shard by shard. Each step does blocking work.

    The lease is in use while a batch is read, not while it is sent. The batches behind it are read ahead. When there is
    no further one, what the snapshot supersedes is retired.
    """

    def __init__(self, parts: Parts, opening: Opening) -> None:
        self._parts, self._announced, self._head = parts, opening.blocks, opening.head
        self._superseded = opening.superseded
        self._pieces = _pieces(opening.blocks)
        self._piece: _Piece | None = None
        self._expected_shard, self._expected = -1, 0

    def __next__(self) -> list[Payload]:
        """The next batch."""
        if self._head and self._piece is None:
            self._piece = _HEAD
            return self._head
        self._head = []
        self._piece = next(self._pieces, None)
        if self._piece is None:
            superseded, self._superseded = self._superseded, ()
            retire(self._parts, superseded)
            raise StopIteration
        return self.again()

    def again(self) -> list[Payload]:
        """The last batch once more, as long as the first time. A block that was there may have become a miss since."""
        if self._piece is None or self._piece is _HEAD:
            return self._head
        loaded = self._read(*self._piece)
        return _block_frames(self._parts, self._announced, self._piece.shard, self._piece.start, loaded)

    def _read(self, shard: int, start: int, end: int) -> list[Loaded | Miss]:
        """Read a batch. Once the lease is over nothing of it is held any more, so what is left are misses."""
        announced, timer = self._announced, self._parts.metrics.tier_latency.labels("ssd", "read")
        at = announced.position
        try:
            with self._parts.leases.use(announced.owner, announced.lease_id) as lease, timer.time():
                self._expect(lease, shard, start, end)
                return lease.blocks[shard].read(at + start, at + end)
        except UnknownLeaseError:
            return [Miss(entry.id, MissReason.EXPIRED) for entry in announced.entries[shard][start:end]]

    def expect_first(self, lease: Lease) -> None:
        """Begin to read the first batches of several, while the head of the answer is on its way."""
        pieces = list(islice(_pieces(self._announced), 2))
        if len(pieces) > 1:
            self._expect(lease, *pieces[0])

    def _expect(self, lease: Lease, shard: int, start: int, end: int) -> None:
        """Begin to read a batch and those behind it, as far as that was not done yet."""
        entries, at = self._announced.entries[shard], self._announced.position
        expected = self._expected if self._expected_shard == shard else 0
        ahead = min(end + AHEAD_BATCHES * (end - start), len(entries))
        lease.blocks[shard].expect(at + max(start, expected), at + ahead)
        self._expected_shard, self._expected = shard, ahead


class _Piece(NamedTuple):
    """A batch of one shard's blocks."""

    shard: int
    start: int
    end: int


_HEAD = _Piece(-1, 0, 0)


@dataclass(frozen=True, slots=True)
class Fetch:
    """A fetch under way. The buffers of ``batches`` add up to ``length_bytes``, also when the lease ends on the way:
    what can no longer be read is a miss.

    ``fell_back`` says that a snapshot was gone and the fallback is what is sent.
    """

    fell_back: bool
    length_bytes: int
    batches: Batches


class NoSuchShardError(ValueError):
    """The namespace has fewer shards than that."""


class NoSuchBlockError(ValueError):
    """The plan loads no such block."""


def open_fetch(
    parts: Parts,
    owner: str | None,
    lease_id: str,
    shard: int | None,
    describe: Callable[[Lease], bytes],
    *,
    fall_back: bool = False,
    on_head: OnHead | None = None,
) -> Fetch:
    """Start sending what a lease of ``owner`` holds of one shard, or of all of them in order.

    The snapshot is read first: only when it is there is the plan sent, else the fallback, with ``describe``'s bytes in
    a frame of their own ahead of its blocks. ``fall_back`` asks for the fallback all the same, where there is one: the
    client has found the snapshot bad. Who gives ``on_head`` may be told of a snapshot that then turns out to be bad: it
    is sent to its end so that the client finds that too.

    Raises:
        UnknownLeaseError: see there.
        NoSuchShardError: ``shard`` is not of this namespace.
    """
    with parts.leases.use(owner, lease_id) as lease:
        opening = begin_fetch(parts, lease, shard, describe, fall_back=fall_back, on_head=on_head)
        return _fetch(parts, lease, opening)


def open_blocks(
    parts: Parts, owner: str | None, lease_id: str, shard: int, numbers: range, *, of_fallback: bool
) -> Fetch:
    """Start sending some of the blocks of one shard that the lease's plan, or its fallback, loads: the first is 0.

    Raises:
        UnknownLeaseError: see there.
        NoSuchShardError, NoSuchBlockError: see there.
    """
    with parts.leases.use(owner, lease_id) as lease:
        answer = lease.fallback if of_fallback else lease.primary
        if answer is None:
            raise NoSuchBlockError("this lease has no fallback")
        whole = _announce(lease, answer.plan.load, _shards(lease, shard))
        if not 0 <= numbers.start <= numbers.stop <= len(whole.keys):
            raise NoSuchBlockError(f"blocks are from 0 to {len(whole.keys)}, got {numbers.start} to {numbers.stop}")
        return _fetch(parts, lease, Opening(of_fallback, [], whole.part(numbers)))


def _fetch(parts: Parts, lease: Lease, opening: Opening) -> Fetch:
    batches = Batches(parts, opening)
    batches.expect_first(lease)
    return Fetch(opening.fell_back, opening.length_bytes, batches)


def begin_fetch(
    parts: Parts,
    lease: Lease,
    shard: int | None,
    describe: Callable[[Lease], bytes],
    *,
    fall_back: bool,
    on_head: OnHead | None = None,
) -> Opening:
    """Decide what is sent of a lease in use, and read what is no block. Arguments and errors as :func:`open_fetch`."""
    shards = _shards(lease, shard)
    lease.was_read = True
    if fall_back:
        _fall_back(parts, lease)
    early = _early_frame(lease, shards, on_head)
    head, superseded = _read_snapshots(parts, lease, shards, early)
    answer = lease.current  # Read once: the fetch of another shard may fall back at any time.
    if early is not None and early.has_begun:  # It was for the plan, whatever became of it since.
        answer, head = lease.primary, head or early.spoilt()
    fell_back = answer is not lease.primary
    if fell_back:
        head = [_fallback_frame(describe(lease))]
    parts.metrics.fetches.labels("fallback" if fell_back else "plan").inc()
    return Opening(fell_back, head, _announce(lease, answer.plan.load, shards), superseded)


def _shards(lease: Lease, shard: int | None) -> range:
    if shard is None:
        return range(lease.namespace.shards)
    if not 0 <= shard < lease.namespace.shards:
        raise NoSuchShardError(f"shard must be from 0 to {lease.namespace.shards - 1}, got {shard}")
    return range(shard, shard + 1)


def _announce(lease: Lease, load: Load, shards: range) -> Announced:
    tokens = lease.namespace.layout.block_tokens
    first, last = load.global_start // tokens, max(load.global_start, load.global_end) // tokens
    start, end = first - lease.first_block, last - lease.first_block
    return Announced(
        lease.owner,
        lease.lease_id,
        start,
        first * tokens,
        tokens,
        lease.keys[first:last],
        {shard: lease.blocks[shard].entries[start:end] for shard in shards} if first < last else {},
    )


def _early_frame(lease: Lease, shards: range, on_head: OnHead | None) -> EarlyFrame | None:
    """Who is told of the snapshot while it is read; None where nobody is, or it is of several shards: whether the plan
    is sent is known only when the last of them has begun to come.
    """
    if on_head is None or len(shards) != 1 or lease.snapshot is None:
        return None
    return EarlyFrame(
        partial(_snapshot_header, lease),
        lambda: _announce(lease, lease.primary.plan.load, shards).length_bytes,
        on_head,
    )


def _read_snapshots(
    parts: Parts, lease: Lease, shards: range, early: EarlyFrame | None
) -> tuple[list[Payload], list[Superseded]]:
    """The snapshot's frames, and what it supersedes. When any shard of it is gone, the lease falls back for good and
    there are none.
    """
    if lease.snapshot is None or lease.fell_back:
        return [], []
    with parts.metrics.tier_latency.labels("dram", "read").time():
        loaded = parts.snapshots.use(lease.snapshot, shards.start, shards.stop, early)
    frames: list[Payload] = []
    used: list[Entry] = []
    for found, held in zip(loaded, lease.snapshot.entries[shards.start : shards.stop], strict=True):
        if isinstance(found, Loaded) and isinstance(held, Entry) and found.entry.provenance >= held.provenance:
            header = _snapshot_header(lease, found.entry)
            if early is None or early.is_of(header):
                frames += [header, found.payload]
                used.append(found.entry)
                continue
        reason = found.reason if isinstance(found, Miss) else MissReason.EVICTED
        parts.metrics.fetched.labels("snapshot", "miss", reason.value).inc()
        lease.why_lost = reason
        _fall_back(parts, lease)
        return [], []
    parts.metrics.fetched.labels("snapshot", "hit", "none").inc(len(used))
    return frames, superseded_by(used, lease.snapshot)


def _snapshot_header(lease: Lease, entry: Entry) -> bytes:
    boundary = lease.primary.plan.load.snapshot_boundary or 0
    key = lease.keys[boundary // lease.namespace.layout.block_tokens - 1]
    return _header(FrameKind.SNAPSHOT, key, boundary, entry)


def _fall_back(parts: Parts, lease: Lease) -> None:
    """From here on the fallback is the plan. A store that still names the primary one claims what both support."""
    if lease.fallback is None:
        return
    lease.fell_back = True
    primary, fallback = (parts.plans.get((lease.owner, answer.plan_id)) for answer in (lease.primary, lease.fallback))
    if primary is not None and fallback is not None:
        parts.plans.put((lease.owner, lease.primary.plan_id), primary._replace(ran=primary.ran.either(fallback.ran)))


def _pieces(announced: Announced) -> Iterator[_Piece]:
    for shard, entries in announced.entries.items():
        start = 0
        while start < len(entries):
            end = start + _batch_size(entries[start : start + BATCH_RECORDS])
            yield _Piece(shard, start, end)
            start = end


def _batch_size(entries: Sequence[Entry | Miss]) -> int:
    """How many of the entries make about ``BATCH_BYTES``, one at least."""
    total = 0
    for position, entry in enumerate(entries):
        total += entry.length_bytes if isinstance(entry, Entry) else 0
        if total > BATCH_BYTES:
            return max(1, position)
    return len(entries)


def _block_frames(
    parts: Parts, announced: Announced, shard: int, start: int, loaded: Sequence[Loaded | Miss]
) -> list[Payload]:
    buffers: list[Payload] = []
    kind, hits = int(FrameKind.BLOCK), 0
    for number, found in enumerate(loaded, start):
        key, end_tokens = announced.keys[number], announced.start_tokens + (number + 1) * announced.block_tokens
        if isinstance(found, Loaded):
            buffers += (_header(kind, key, end_tokens, found.entry), found.payload)
            hits += 1
            continue
        parts.metrics.fetched.labels("block", "miss", found.reason.value).inc()
        buffers += _miss_frame(key, end_tokens, announced.entries[shard][number], found.reason)
    parts.metrics.fetched.labels("block", "hit", "none").inc(hits)
    return buffers


def _header(kind: int, key: bytes, end_tokens: int, entry: Entry) -> bytes:
    (_, shard), provenance, length, checksum, generation, *_ = entry
    return pack_fields(kind, key, length, checksum, provenance, shard, end_tokens, generation)


def _miss_frame(key: bytes, end_tokens: int, entry: Entry | Miss, reason: MissReason) -> list[Payload]:
    """A record that turned bad since it was leased, or whose lease is over: filler of the announced length, and why."""
    if not isinstance(entry, Entry):
        return []
    filler = bytes(entry.length_bytes)
    header = FrameHeader(
        FrameKind.BLOCK,
        key,
        entry.length_bytes,
        checksum_of(filler),
        Provenance.REPLAYED,
        entry.id.shard,
        end_tokens,
        miss=reason,
    )
    return [pack_header(header), filler]


def _fallback_frame(document: bytes) -> bytes:
    header = FrameHeader(FrameKind.FALLBACK, bytes(32), len(document), checksum_of(document))
    return pack_header(header) + document
