"""A batch: one transaction of the index in which records, segments and owners change together or not at all."""

from types import TracebackType
from typing import NamedTuple

import lmdb

from storage.ssd.format import PAGE_BYTES, padded_bytes
from storage.ssd.index import Index
from storage.ssd.rows import (
    META,
    META_KEY,
    OWNERS,
    PLACES,
    RECORDS,
    SEGMENTS,
    OwnerRow,
    SegmentRow,
    SegmentState,
    Slot,
    pack_number,
    pack_owner,
    pack_place,
    pack_segment,
    pack_slot,
    unpack_place,
    unpack_slot,
)


class Dropped(NamedTuple):
    """A record that leaves the index with a batch, and why (a cause of ``TierObserver.evicted``)."""

    id_bytes: bytes
    slot: Slot
    cause: str


class Batch:
    """Changes to the index. The caller is the only writer. Leaving the ``with`` block without a commit undoes it all.

    Raises:
        lmdb.Error: from any method, when LMDB fails; the batch is undone.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._txn: lmdb.Transaction = index.env.begin(write=True)
        self._records, self._places = index.dbs[RECORDS], index.dbs[PLACES]
        self._segments: dict[int, SegmentRow | None] = {}
        self._owners: dict[int, OwnerRow] = {}
        self._is_open = True
        self.dropped: list[Dropped] = []
        self.is_updated = False
        """Whether something is said anew of a record that stays where it is."""

    def __enter__(self) -> "Batch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_open:
            self._is_open = False
            self._txn.abort()

    def get(self, id_bytes: bytes) -> Slot | None:
        """The record's row. A damaged one is none, and the index is marked as damaged."""
        value = self._txn.get(id_bytes, db=self._records)
        if value is None:
            return None
        slot = unpack_slot(id_bytes, bytes(value))
        if slot is None:
            self._index.is_damaged = True
        return slot

    def places(self, number: int) -> list[tuple[int, bytes]]:
        """``(page, id bytes)`` of the records of a segment, in the order of their places."""
        found: list[tuple[int, bytes]] = []
        cursor = self._txn.cursor(db=self._places)
        is_there = cursor.set_range(pack_place(number, 0))
        while is_there:
            key, id_bytes = cursor.item()
            segment, page = unpack_place(bytes(key))
            if segment != number:
                break
            found.append((page, bytes(id_bytes)))
            is_there = cursor.next()
        return found

    def segment(self, number: int) -> SegmentRow:
        """The row of a segment as this batch has it, to be changed in place."""
        row = self._segments.get(number)
        if row is None:
            row = self._segments[number] = self._index.segments.rows[number].copy()
        return row

    def is_changed(self, number: int) -> bool:
        """Whether this batch changes the segment."""
        return number in self._segments

    def active(self) -> int | None:
        """The segment that is written to, as this batch has it."""
        for number, row in self._segments.items():
            if row is not None and row.state is SegmentState.ACTIVE:
                return number
        active = self._index.segments.active
        return None if active in self._segments else active

    def open_segment(self, number: int) -> None:
        """Make a free segment the one that is written to. The one before must have been sealed."""
        row = self.segment(number)
        row.state, row.sequence = SegmentState.ACTIVE, self._index.next_sequence()
        row.write_bytes, row.oldest_at = 0, self._index.clock.now()

    def seal_segment(self, number: int) -> None:
        """Nothing more is written to the segment; without live records it is free at once."""
        row = self.segment(number)
        row.state = SegmentState.SEALED
        self._free_if_empty(row)

    def add_segment(self, number: int, size_bytes: int) -> None:
        """A new, free segment."""
        self._segments[number] = SegmentRow(size_bytes)

    def remove_segment(self, number: int) -> None:
        """A free segment is no more."""
        self._segments[number] = None

    def owner_number(self, name: str) -> int:
        """The number of an owner; a new one gets the next."""
        number = self._index.owners.numbers.get(name)
        if number is None:
            number = next((number for number, row in self._owners.items() if row.name == name), None)
        if number is None:
            number = max((*self._index.owners.rows, *self._owners), default=0) + 1
            self._owners[number] = OwnerRow(name)
        return number

    def put(self, id_bytes: bytes, slot: Slot) -> None:
        """Name a record. Its id must not be named: drop what was there first."""
        self._txn.put(id_bytes, pack_slot(id_bytes, slot), db=self._records)
        self._txn.put(pack_place(slot.segment, slot.page), id_bytes, db=self._places)
        self._account(slot, 1)

    def move(self, id_bytes: bytes, old: Slot, new: Slot) -> None:
        """The record is at a new place."""
        self._txn.delete(pack_place(old.segment, old.page), db=self._places)
        self._account(old, -1)
        self.put(id_bytes, new)

    def update(self, id_bytes: bytes, slot: Slot) -> None:
        """Change what is known of a record that stays where it is."""
        self.is_updated = True
        self._txn.put(id_bytes, pack_slot(id_bytes, slot), db=self._records)

    def drop(self, id_bytes: bytes, slot: Slot, cause: str) -> None:
        """Forget a record."""
        self._txn.delete(id_bytes, db=self._records)
        self._txn.delete(pack_place(slot.segment, slot.page), db=self._places)
        self._account(slot, -1)
        self.dropped.append(Dropped(id_bytes, slot, cause))

    def commit(self) -> None:
        """Write it all. The data is on the medium afterwards, the commit itself only after :meth:`Index.sync`."""
        for number, segment in self._segments.items():
            key = pack_number(number)
            if segment is None:
                self._txn.delete(key, db=self._index.dbs[SEGMENTS])
            else:
                self._txn.put(key, pack_segment(segment), db=self._index.dbs[SEGMENTS])
        for number, owner in self._owners.items():
            key = pack_number(number)
            if owner.records:
                self._txn.put(key, pack_owner(owner), db=self._index.dbs[OWNERS])
            else:
                self._txn.delete(key, db=self._index.dbs[OWNERS])
        self._txn.put(META_KEY, self._index.pack_meta(), db=self._index.dbs[META])
        self._is_open = False
        self._txn.commit()
        self._index.committed()
        self._index.segments.apply(self._segments, self._index.commits)
        self._index.owners.apply(self._owners)

    def _account(self, slot: Slot, sign: int) -> None:
        row = self.segment(slot.segment)
        row.live_records += sign
        row.live_bytes += sign * slot.length_bytes
        row.live_pages += sign * (padded_bytes(slot.length_bytes) // PAGE_BYTES)
        if sign > 0:
            row.oldest_at = min(row.oldest_at, slot.last_used_at)
        if row.state is SegmentState.SEALED:
            self._free_if_empty(row)
        owner = self._owners.get(slot.owner)
        if owner is None:
            owner = self._owners[slot.owner] = self._index.owners.rows[slot.owner].copy()
        owner.live_bytes += sign * slot.length_bytes
        owner.records += sign

    def _free_if_empty(self, row: SegmentRow) -> None:
        if row.live_records <= 0:
            self._index.is_damaged |= (row.live_records, row.live_bytes, row.live_pages) != (0, 0, 0)
            row.state, row.write_bytes = SegmentState.FREE, 0
