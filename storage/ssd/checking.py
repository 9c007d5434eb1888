"""Comparing the accounts with the index, record by record, and with the files."""

from collections import Counter

import lmdb

from storage.integrity import expect, expect_equal
from storage.ssd.core import Core
from storage.ssd.format import PAGE_BYTES, padded_bytes
from storage.ssd.index import rows_of
from storage.ssd.rows import (
    OWNERS,
    PLACES,
    RECORDS,
    SEGMENTS,
    SegmentState,
    Slot,
    pack_owner,
    pack_place,
    pack_segment,
    unpack_number,
    unpack_slot,
)


def check(core: Core) -> None:
    """Add everything up again. Damaged records that readers have noted but nobody dropped yet are left to the notes.

    Raises:
        AssertionError: something does not add up; the message names it.
    """
    with core.index.env.begin() as txn:
        slots = _slots(core, txn)
        _check_places(core, txn, slots)
        _check_rows(core, txn)
    _check_segments(core, slots)
    _check_owners(core, slots)
    expect_equal("records", len(slots), core.index.segments.live_records)
    expect_equal("live bytes", sum(slot.length_bytes for slot in slots.values()), core.index.segments.live_bytes)
    used = core.space.used_bytes()
    expect(used <= core.space.budget_bytes, f"{used} bytes used of a budget of {core.space.budget_bytes}")


def _slots(core: Core, txn: lmdb.Transaction) -> dict[bytes, Slot]:
    slots: dict[bytes, Slot] = {}
    for id_bytes, value in rows_of(txn.cursor(db=core.index.dbs[RECORDS])):
        slot = unpack_slot(id_bytes, value)
        if slot is None:
            raise AssertionError(f"the row of record {id_bytes.hex()} is damaged")
        expect(slot.generation >> 32 <= core.index.epoch, f"generation {slot.generation} is from the future")
        slots[id_bytes] = slot
    return slots


def _check_places(core: Core, txn: lmdb.Transaction, slots: dict[bytes, Slot]) -> None:
    named = dict(rows_of(txn.cursor(db=core.index.dbs[PLACES])))
    expect_equal("places", len(named), len(slots))
    ends: dict[int, int] = {}
    for id_bytes, slot in sorted(slots.items(), key=lambda item: (item[1].segment, item[1].page)):
        expect_equal(f"record at {slot.segment}:{slot.page}", named.get(pack_place(slot.segment, slot.page)), id_bytes)
        start = slot.page * PAGE_BYTES
        expect(start >= ends.get(slot.segment, 0), f"records overlap in segment {slot.segment} at {start}")
        ends[slot.segment] = start + padded_bytes(slot.length_bytes)
    for number, end in ends.items():
        expect(end <= core.index.segments.rows[number].write_bytes, f"segment {number} has records past its end")


def _check_rows(core: Core, txn: lmdb.Transaction) -> None:
    index = core.index
    stored = {unpack_number(key): value for key, value in rows_of(txn.cursor(db=index.dbs[SEGMENTS]))}
    expect_equal("segment rows", {n: pack_segment(row) for n, row in index.segments.rows.items()}, stored)
    stored = {unpack_number(key): value for key, value in rows_of(txn.cursor(db=index.dbs[OWNERS]))}
    expect_equal("owner rows", {n: pack_owner(row) for n, row in index.owners.rows.items()}, stored)


def _check_segments(core: Core, slots: dict[bytes, Slot]) -> None:
    table = core.index.segments
    records, live, pages = Counter[int](), Counter[int](), Counter[int]()
    oldest: dict[int, float] = {}
    for slot in slots.values():
        records[slot.segment] += 1
        live[slot.segment] += slot.length_bytes
        pages[slot.segment] += padded_bytes(slot.length_bytes) // PAGE_BYTES
        oldest[slot.segment] = min(slot.last_used_at, oldest.get(slot.segment, slot.last_used_at))
    for number, row in table.rows.items():
        counted = (records[number], live[number], pages[number])
        expect_equal(f"segment {number}", counted, (row.live_records, row.live_bytes, row.live_pages))
        if row.live_records:
            expect(oldest[number] >= row.oldest_at, f"segment {number} holds records older than it says")
        expect(row.state is not SegmentState.SEALED or row.live_records > 0, f"segment {number} is empty and not free")
        expect_equal(f"size of segment {number}", core.files.path(number).stat().st_size, row.size_bytes)
    expect_equal("segment files", set(core.files.sizes()), set(table.rows))
    expect_equal("file bytes", sum(row.size_bytes for row in table.rows.values()), table.file_bytes)
    for state, numbers in ((SegmentState.FREE, set(table.free)), (SegmentState.SEALED, set(table.sealed))):
        expect_equal(f"{state.name} segments", {n for n, row in table.rows.items() if row.state is state}, numbers)
    active = {number for number, row in table.rows.items() if row.state is SegmentState.ACTIVE}
    expect_equal("active segments", active, set() if table.active is None else {table.active})


def _check_owners(core: Core, slots: dict[bytes, Slot]) -> None:
    live, records = Counter[int](), Counter[int]()
    for slot in slots.values():
        live[slot.owner] += slot.length_bytes
        records[slot.owner] += 1
    accounted = {number: (row.live_bytes, row.records) for number, row in core.index.owners.rows.items()}
    expect_equal("owners", {number: (live[number], count) for number, count in records.items()}, accounted)
