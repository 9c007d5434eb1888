"""Look up what is there for a prompt: the contiguous global KV and the snapshots that could serve."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress, count, repeat
from operator import is_not, itemgetter

from kvshelf_client.words import MissReason, Provenance
from service.namespaces import Namespace
from service.planner.base import Request, Snapshot
from service.shelf.fates import Fates
from service.shelf.missing import why_no_snapshot
from service.shelf.parts import Parts
from storage.base import Entry, Hold, Miss, RecordId

_SECOND = itemgetter(1)

SNAPSHOT_BATCH_BOUNDARIES = 64
"""Boundaries looked up at a time, from the deepest down: the deepest one that serves ends the search."""


@dataclass(slots=True)
class BlockSurvey:
    """The blocks of a prompt from ``first_block`` on, one hold a shard, and how far they reach.

    ``reason`` says why block ``global_tokens // block_tokens`` is not there; None when nothing is missing.
    """

    holds: tuple[Hold, ...]
    first_block: int
    global_tokens: int
    exact_global_tokens: int
    reason: MissReason | None

    def release(self) -> None:
        """Let go of everything."""
        for hold in self.holds:
            hold.release()


@dataclass(slots=True)
class SnapshotSurvey:
    """The live snapshots found, deepest first.

    ``missing`` says why the deepest boundary looked at has none: (boundary, reason), or None. ``cause`` is that of the
    deepest one that was ever stored, as :func:`~service.shelf.missing.why_no_snapshot` has it; ``never_stored`` where
    none was, None where none is missing.
    """

    found: list[Snapshot]
    missing: tuple[int, MissReason] | None
    cause: str | None = None

    def lacks(self, boundary: int, fates: Fates, entries: Sequence[Entry | Miss]) -> None:
        """Note a boundary, not as deep as those before, whose snapshot is not there: at least one entry is a miss."""
        if self.missing is None:
            self.missing = boundary, next(entry.reason for entry in entries if isinstance(entry, Miss))
        if self.cause in (None, "never_stored"):
            self.cause = why_no_snapshot(fates, entries)


def survey_blocks(
    parts: Parts, namespace: Namespace, keys: Sequence[bytes], request: Request, *, check_room: Callable[[int], None]
) -> BlockSurvey:
    """Hold every block beyond the exactly held ones and count the contiguous prefixes G and G_exact.

    A block counts as there when the engine holds it whole or every shard of it is stored; for G_exact it must be held
    exactly, or every shard be exact. Each shard is asked only for what the ones before it have. ``check_room`` is told
    how many records that can come to before the second shard is held, and may refuse by raising.
    """
    layout = namespace.layout
    total = request.prompt_tokens // layout.block_tokens
    first, held = request.hbm_exact_tokens // layout.block_tokens, request.hbm_tokens // layout.block_tokens
    if not layout.block_bytes or first >= total:
        whole = total * layout.block_tokens
        return BlockSurvey((), first, whole, whole, None)
    holds: list[Hold] = []
    reach, reason = total - first, None
    try:
        with parts.metrics.tier_latency.labels("ssd", "hold").time():
            for shard in range(namespace.shards):
                holds.append(parts.blocks.hold(namespace.record_ids(keys[first : first + reach], shard)))
                count_lookups(parts, "block", "ssd", holds[-1].entries)
                reach, why = _reach(holds[-1], held - first, reach, exact=False)
                reason = why or reason
                if shard == 0:
                    check_room(reach * namespace.shards)
    except BaseException:  # Whatever went wrong, nothing may stay pinned.
        for hold in holds:
            hold.release()
        raise
    exact_reach = reach
    for hold in holds:
        exact_reach, _ = _reach(hold, 0, exact_reach, exact=True)
    tokens = layout.block_tokens
    return BlockSurvey(tuple(holds), first, (first + reach) * tokens, (first + exact_reach) * tokens, reason)


def _reach(hold: Hold, start: int, end: int, *, exact: bool) -> tuple[int, MissReason | None]:
    """Where the contiguous entries from ``start`` end, at ``end`` at the latest; and the reason of the miss there."""
    entries = hold.entries[start:end]
    # The second field of a miss is its reason, and so no provenance: thousands of blocks take no loop.
    gaps = (
        map(is_not, map(_SECOND, entries), repeat(Provenance.EXACT))
        if exact
        else map(isinstance, entries, repeat(Miss))
    )
    position = next(compress(count(start), gaps), end)
    gap = hold.entries[position] if position < end else None
    return position, gap.reason if isinstance(gap, Miss) else None


def survey_snapshots(
    parts: Parts, namespace: Namespace, keys: Sequence[bytes], boundaries: range, *, exact_only: bool, every: bool
) -> SnapshotSurvey:
    """Look for live snapshots at ``boundaries``, from the deepest down.

    The search ends with the batch that has one that serves, unless ``every`` one is wanted (under a byte limit a
    shallower one may be the one that is affordable). A pool that is down ends it at once.
    """
    survey = SnapshotSurvey([], None)
    deepest_first = boundaries[::-1]
    for start in range(0, len(deepest_first), SNAPSHOT_BATCH_BOUNDARIES):
        is_down = _survey_batch(
            parts, namespace, keys, deepest_first[start : start + SNAPSHOT_BATCH_BOUNDARIES], survey
        )
        serves = any(snapshot.provenance is Provenance.EXACT or not exact_only for snapshot in survey.found)
        if is_down or (serves and not every):
            break
    return survey


def snapshot_ids(namespace: Namespace, keys: Sequence[bytes], boundary_tokens: int) -> list[RecordId]:
    """The records of the snapshot at a boundary, one a shard. Its key is that of the last block before it."""
    key = keys[boundary_tokens // namespace.layout.block_tokens - 1]
    return [namespace.record_id(key, shard) for shard in range(namespace.shards)]


def _survey_batch(
    parts: Parts, namespace: Namespace, keys: Sequence[bytes], batch: range, survey: SnapshotSurvey
) -> bool:
    """Look up one batch and add what it has; says whether the pool is down."""
    ids = [record_id for boundary in batch for record_id in snapshot_ids(namespace, keys, boundary)]
    with parts.metrics.tier_latency.labels("dram", "hold").time():
        entries = parts.snapshots.lookup(ids)
    count_lookups(parts, "snapshot", "dram", entries)
    down = False
    for position, boundary in enumerate(batch):
        shards = entries[position * namespace.shards : (position + 1) * namespace.shards]
        missing = next((entry.reason for entry in shards if isinstance(entry, Miss)), None)
        if missing is None:
            survey.found.append(Snapshot(boundary, worst_provenance(shards)))
        else:
            survey.lacks(boundary, parts.fates, shards)
        down = down or missing is MissReason.TIER_DOWN
    return down


def worst_provenance(entries: Sequence[Entry | Miss]) -> Provenance:
    """A record of several shards is exact only if every shard of it is."""
    return min(entry.provenance for entry in entries if isinstance(entry, Entry))


def count_lookups(parts: Parts, kind: str, tier: str, entries: Sequence[Entry | Miss]) -> None:
    """Count hits and misses with their reasons."""
    misses = Counter(entry.reason for entry in entries if type(entry) is Miss)
    parts.metrics.lookups.labels(kind, tier, "hit", "none").inc(len(entries) - misses.total())
    for reason, number in misses.items():
        parts.metrics.lookups.labels(kind, tier, "miss", reason.value).inc(number)
