"""Answer a fetch: the records a lease holds, as frames, read in batches as they are sent."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvshelf_client.frames import HEADER_BYTES, FrameHeader, FrameKind, checksum_of, pack_header
from kvshelf_client.words import MissReason, Provenance
from service.leases.lease import Lease
from service.planner.base import Load
from service.shelf.parts import Parts
from service.shelf.survey import worst_provenance
from storage.base import Entry, Hold, Loaded, Miss, Payload, RecordId

BATCH_BYTES = 1 << 20
"""Payload bytes read and sent at a time: smaller costs system calls, larger memory and copies in the kernel."""
BATCH_RECORDS = 128


@dataclass(frozen=True, slots=True)
class Fetch:
    """A fetch under way. ``batches`` does blocking work at each step; its buffers add up to ``length_bytes``.

    ``fell_back`` says that a snapshot was gone and the fallback is what is sent.
    """

    fell_back: bool
    length_bytes: int
    batches: Iterator[list[Payload]]


class NoSuchShardError(ValueError):
    """The namespace has fewer shards than that."""


def open_fetch(
    parts: Parts, lease_id: str, shard: int | None, describe: Callable[[Lease], bytes], *, fall_back: bool = False
) -> Fetch:
    """Start sending what a lease holds of one shard, or of all of them in order.

    The snapshot is read first: only when it is there is the plan sent, else the fallback, with ``describe``'s bytes in
    a frame of their own ahead of its blocks. ``fall_back`` asks for the fallback all the same, where there is one: the
    client has found the snapshot bad.

    Raises:
        UnknownLeaseError: see there.
        NoSuchShardError: ``shard`` is not of this namespace.
    """
    with parts.leases.use(lease_id) as lease:
        shards = _shards(lease, shard)
        if fall_back:
            _fall_back(parts, lease)
        head = _read_snapshots(parts, lease, shards)
        answer = lease.current  # Read once: the fetch of another shard may fall back at any time.
        fell_back = answer is not lease.primary
        if fell_back:
            head = [_fallback_frame(describe(lease))]
        parts.metrics.fetches.labels("fallback" if fell_back else "plan").inc()
        wanted = _block_range(lease, answer.plan.load)
        length = sum(map(len, head)) + sum(
            HEADER_BYTES + entry.length_bytes
            for at in shards
            for entry in (lease.blocks[at].entries[wanted.start : wanted.stop] if wanted else ())
            if isinstance(entry, Entry)
        )
        return Fetch(fell_back, length, _batches(parts, lease_id, shards, wanted, head))


def _shards(lease: Lease, shard: int | None) -> range:
    if shard is None:
        return range(lease.namespace.shards)
    if not 0 <= shard < lease.namespace.shards:
        raise NoSuchShardError(f"shard {shard} of {lease.namespace.shards}")
    return range(shard, shard + 1)


def _block_range(lease: Lease, load: Load) -> range:
    """The entries of each shard's hold that are to be loaded."""
    tokens = lease.namespace.layout.block_tokens
    if load.global_end <= load.global_start:
        return range(0)
    return range(load.global_start // tokens - lease.first_block, load.global_end // tokens - lease.first_block)


def _read_snapshots(parts: Parts, lease: Lease, shards: range) -> list[Payload]:
    """The snapshot's frames. When any shard of it is gone, the lease falls back for good and there are none."""
    if lease.snapshot is None or lease.fell_back:
        return []
    with parts.metrics.tier_latency.labels("dram", "read").time():
        loaded = lease.snapshot.read(shards.start, shards.stop)
    boundary = lease.primary.plan.load.snapshot_boundary or 0
    key = lease.keys[boundary // lease.namespace.layout.block_tokens - 1]
    frames: list[Payload] = []
    for found, entry in zip(loaded, lease.snapshot.entries[shards.start : shards.stop], strict=True):
        if isinstance(found, Miss) or not isinstance(entry, Entry) or found.entry.provenance < entry.provenance:
            reason = found.reason if isinstance(found, Miss) else MissReason.EVICTED
            parts.metrics.fetched.labels("snapshot", "miss", reason.value).inc()
            _fall_back(parts, lease)
            return []
        frames += [_header(FrameKind.SNAPSHOT, key, boundary, found.entry), found.payload]
    parts.metrics.fetched.labels("snapshot", "hit", "none").inc(len(loaded))
    _use_snapshot(parts, [found.entry for found in loaded if isinstance(found, Loaded)], lease.snapshot)
    return frames


def _fall_back(parts: Parts, lease: Lease) -> None:
    """From here on the fallback is the plan. A store that still names the primary one claims what both support."""
    if lease.fallback is None:
        return
    lease.fell_back = True
    facts = parts.plans.get(lease.fallback.plan_id)
    if facts is not None:
        ran = facts.ran._replace(exact=facts.ran.exact and lease.primary.plan.exact)
        parts.plans.put(lease.primary.plan_id, facts._replace(ran=ran))


def _use_snapshot(parts: Parts, entries: list[Entry], hold: Hold) -> None:
    """A use renews the snapshot's life and retires the one it supersedes, unless that is the better one.

    A snapshot is no better than its worst shard, whichever shards are fetched here.
    """
    parts.snapshots.touch([entry.id for entry in entries])
    provenance = worst_provenance(hold.entries)
    for entry in entries:
        if entry.supersedes is None or entry.supersedes == entry.id.key:
            continue
        earlier = RecordId(entry.supersedes, entry.id.shard)
        (found,) = parts.snapshots.lookup([earlier])
        if isinstance(found, Entry) and found.provenance <= provenance:
            parts.snapshots.delete([earlier], cause="superseded")


def _batches(parts: Parts, lease_id: str, shards: range, wanted: range, head: list[Payload]) -> Iterator[list[Payload]]:
    """The head, then the blocks shard by shard. The lease is in use while a batch is read, not while it is sent."""
    if head:
        yield head
    for shard in shards:
        start = wanted.start
        while start < wanted.stop:
            with parts.leases.use(lease_id) as lease:
                end = start + _batch_size(lease.blocks[shard], start, wanted.stop)
                batch = _read_blocks(parts, lease, shard, start, end)
            start = end
            yield batch


def _batch_size(hold: Hold, start: int, end: int) -> int:
    """How many entries from ``start`` make about ``BATCH_BYTES``, one at least."""
    total = 0
    for position in range(start, min(end, start + BATCH_RECORDS)):
        entry = hold.entries[position]
        total += entry.length_bytes if isinstance(entry, Entry) else 0
        if total > BATCH_BYTES:
            return max(1, position - start)
    return min(end, start + BATCH_RECORDS) - start


def _read_blocks(parts: Parts, lease: Lease, shard: int, start: int, end: int) -> list[Payload]:
    hold, tokens = lease.blocks[shard], lease.namespace.layout.block_tokens
    with parts.metrics.tier_latency.labels("ssd", "read").time():
        loaded = hold.read(start, end)
    buffers: list[Payload] = []
    for position, found in enumerate(loaded, start):
        block = lease.first_block + position
        key, end_tokens = lease.keys[block], (block + 1) * tokens
        if isinstance(found, Loaded):
            buffers += [_header(FrameKind.BLOCK, key, end_tokens, found.entry), found.payload]
            continue
        parts.metrics.fetched.labels("block", "miss", found.reason.value).inc()
        buffers += _miss_frame(key, end_tokens, hold.entries[position], found.reason)
    hits = sum(isinstance(found, Loaded) for found in loaded)
    parts.metrics.fetched.labels("block", "hit", "none").inc(hits)
    return buffers


def _header(kind: FrameKind, key: bytes, end_tokens: int, entry: Entry) -> bytes:
    return pack_header(
        FrameHeader(
            kind,
            key,
            entry.length_bytes,
            entry.checksum,
            entry.provenance,
            entry.id.shard,
            end_tokens,
            entry.generation,
        )
    )


def _miss_frame(key: bytes, end_tokens: int, entry: Entry | Miss, reason: MissReason) -> list[Payload]:
    """A record that turned bad since it was leased: filler of the announced length, and why."""
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
