"""Rebuilding the accounts from the records, after a row of the index turned out damaged. The only full scan."""

from collections import defaultdict

from storage.ssd.batch import Dropped
from storage.ssd.format import ID_BYTES, PAGE_BYTES, padded_bytes
from storage.ssd.index import Index, rows_of
from storage.ssd.rows import (
    META,
    META_KEY,
    OWNERS,
    PLACES,
    RECORDS,
    REPAIR_KEY,
    SEGMENTS,
    OwnerRow,
    SegmentRow,
    SegmentState,
    Slot,
    pack_number,
    pack_owner,
    pack_place,
    pack_segment,
    unpack_slot,
)

_LOST_OWNER = "?"
NOTHING = Slot(0, 0, 0.0, 0.0, 0, 0, 0, 0, 0, 0)
"""Stands for the row of a record whose row is lost."""


def rebuild_accounts(index: Index, sizes: dict[int, int] | None = None) -> list[Dropped]:
    """Make places, segments and owners what the intact records add up to, in one transaction, and durable.

    Args:
        index: its tables in memory are replaced too.
        sizes: the segment files that are there, in bytes; None: those that the index knows.

    Returns:
        The records that were dropped: their row is damaged, they are in no segment, or another claims their place.

    Raises:
        lmdb.Error: the index cannot be written; nothing has changed then.
    """
    known = index.segments.rows
    sizes = {number: row.size_bytes for number, row in known.items()} if sizes is None else sizes
    segments = {number: _blank(known.get(number), size) for number, size in sizes.items()}
    owners: dict[int, OwnerRow] = {}
    dropped: list[Dropped] = []
    with index.env.begin(write=True) as txn:
        for name in (PLACES, SEGMENTS, OWNERS):
            txn.drop(index.dbs[name], delete=False)
        for id_bytes, value in list(rows_of(txn.cursor(db=index.dbs[RECORDS]))):
            slot = unpack_slot(id_bytes, value)
            row = segments.get(slot.segment) if slot is not None else None
            if (
                slot is None
                or row is None
                or not _fits(id_bytes, slot, row)
                or not txn.put(pack_place(slot.segment, slot.page), id_bytes, db=index.dbs[PLACES], overwrite=False)
            ):
                txn.delete(id_bytes, db=index.dbs[RECORDS])
                dropped.append(Dropped(id_bytes, slot or NOTHING, "corrupt"))
                continue
            _account(slot, row, owners, index)
            index.epoch = max(index.epoch, slot.generation >> 32)
        _settle_states(segments)
        for number, segment in segments.items():
            txn.put(pack_number(number), pack_segment(segment), db=index.dbs[SEGMENTS])
        for number, owner in owners.items():
            txn.put(pack_number(number), pack_owner(owner), db=index.dbs[OWNERS])
        index.sequence = max([index.sequence, *(row.sequence for row in segments.values())])
        txn.put(META_KEY, index.pack_meta(), db=index.dbs[META])
        txn.delete(REPAIR_KEY, db=index.dbs[META])
    index.committed()
    index.sync()
    index.segments.load(segments)
    index.owners.load(owners)
    index.is_damaged = False
    return dropped


def _blank(known: SegmentRow | None, size_bytes: int) -> SegmentRow:
    """A segment with nothing in it yet. One whose row is lost counts as the oldest."""
    if known is None:
        return SegmentRow(size_bytes, SegmentState.SEALED)
    blank = SegmentRow(size_bytes, known.state, known.sequence, known.write_bytes)
    blank.oldest_at = known.oldest_at
    return blank


def _fits(id_bytes: bytes, slot: Slot, row: SegmentRow) -> bool:
    end = slot.page * PAGE_BYTES + padded_bytes(slot.length_bytes)
    return len(id_bytes) == ID_BYTES and end <= row.size_bytes


def _account(slot: Slot, row: SegmentRow, owners: dict[int, OwnerRow], index: Index) -> None:
    row.live_records += 1
    row.live_bytes += slot.length_bytes
    row.live_pages += padded_bytes(slot.length_bytes) // PAGE_BYTES
    row.oldest_at = min(row.oldest_at or slot.last_used_at, slot.last_used_at)
    row.write_bytes = max(row.write_bytes, slot.page * PAGE_BYTES + padded_bytes(slot.length_bytes))
    if slot.owner not in owners:
        known = index.owners.rows.get(slot.owner)
        owners[slot.owner] = OwnerRow(known.name if known else f"{_LOST_OWNER}{slot.owner}")
    owners[slot.owner].live_bytes += slot.length_bytes
    owners[slot.owner].records += 1


def _settle_states(segments: dict[int, SegmentRow]) -> None:
    """Free what is empty, and leave at most one segment active: the one opened last."""
    by_state: defaultdict[SegmentState, list[SegmentRow]] = defaultdict(list)
    for row in segments.values():
        if row.state is not SegmentState.ACTIVE:
            row.state = SegmentState.SEALED if row.live_records else SegmentState.FREE
        if row.state is SegmentState.FREE:
            row.write_bytes = 0
        by_state[row.state].append(row)
    for row in sorted(by_state[SegmentState.ACTIVE], key=lambda row: row.sequence)[:-1]:
        row.state = SegmentState.SEALED if row.live_records else SegmentState.FREE
