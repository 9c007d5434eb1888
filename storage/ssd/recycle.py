"""Taking space back: dropping the expired, carrying live records out of mostly empty segments, and eviction.

Everything here runs under the writer's lock and ends in a commit of its own. A record that is carried keeps its
generation and its bytes; the copy is synced before the index names it, and the old segment is written over only after
that commit is durable (:meth:`Space.place` sees to it).
"""

from typing import NamedTuple

from kvshelf_client.words import Provenance
from storage.base import Entry
from storage.ssd.batch import Batch
from storage.ssd.core import Core
from storage.ssd.format import PAGE_BYTES, padded_bytes
from storage.ssd.ids import record_id_of
from storage.ssd.images import image_around
from storage.ssd.rows import RELAXED, USED, SegmentState, Slot
from storage.ssd.sizing import WhenFull
from storage.ssd.space import RESERVE
from storage.ssd.upkeep import repair

_SWEEPS_PER_TTL = 200
_CARRY_SHARE = 0.5
"""At most this share of a segment is carried forward when it is evicted, so that every eviction gains space."""

_COMPACT_SHARE = {WhenFull.EVICT: 0.5, WhenFull.REFUSE: 0.9}
"""A segment with a smaller share of live pages is emptied before anything is evicted or refused."""


class Row(NamedTuple):
    """A live record of a segment, with the touches that were only batched."""

    id_bytes: bytes
    slot: Slot

    @property
    def is_used(self) -> bool:
        """It was used since it was put where it is."""
        return bool(self.slot.flags & USED)

    @property
    def size_bytes(self) -> int:
        """What it takes in a segment."""
        return padded_bytes(self.slot.length_bytes)

    def entry(self) -> Entry:
        """The row as a lookup would tell it."""
        slot = self.slot
        return Entry(
            record_id_of(self.id_bytes),
            Provenance(slot.provenance),
            slot.length_bytes,
            slot.checksum,
            slot.generation,
            slot.created_at,
            slot.last_used_at,
            slot.supersedes,
            slot.label,
        )


class Recycler:
    """Takes space back. Used by the writer alone.

    Args:
        core: the tier's state.
        when_full: what is done when only live records are left.
    """

    def __init__(self, core: Core, when_full: WhenFull) -> None:
        self._core = core
        self._when_full = when_full
        self._swept_at: dict[int, float] = {}
        self.retention_seconds: float | None = None
        """How long after its last use the youngest record went that the last forced eviction dropped."""

    def make_room(self) -> bool:
        """One step towards a free segment: grow, drop the expired, empty a sparse segment, evict. False: no way left.

        Raises:
            OSError: a file could not be made or written.
            lmdb.Error: the index could not be written.
        """
        core = self._core
        core.space.remove_misfits()
        if core.space.grow() or self.sweep_one():
            return True
        if self._compact():
            return True
        return self._when_full is WhenFull.EVICT and self._evict_oldest()

    def sweep_one(self) -> bool:
        """Drop the expired records of one segment that may have any; False when there is none such.

        A segment of which little is left is emptied. The same one is looked at only so many times in a TTL.
        """
        core, now = self._core, self._core.now()
        interval = core.ttl_seconds / _SWEEPS_PER_TTL
        for number, row in core.index.segments.rows.items():
            is_due = row.live_records and not core.is_live(row.oldest_at, now)
            if is_due and now - self._swept_at.get(number, -interval) >= interval:
                self._swept_at[number] = now
                self._sweep(number, now)
                return True
        if len(self._swept_at) > len(core.index.segments.rows):
            self._swept_at.clear()
        return False

    def shrink_to_budget(self, *, is_opening: bool = False) -> None:
        """Give segments up while the index needs their space, or because the budget was made smaller.

        A tier that refuses rather than evicts gives up only free segments, except when it ``is_opening``. Then segments
        of another size go too, until there is room for new ones.
        """
        space = self._core.space
        if is_opening:
            space.seal_misfit()
        may_evict = is_opening or self._when_full is WhenFull.EVICT
        while space.is_over_budget(is_opening=is_opening) or (is_opening and space.is_cramped(is_opening=True)):
            if space.remove_misfits():
                continue
            is_short = not space.has_free(RESERVE + 1) and (not space.is_smallest() or space.has_misfits())
            if is_short and may_evict and self._evict_oldest(is_carrying=not is_opening):
                continue
            if not space.shrink():
                return

    def _sweep(self, number: int, now: float) -> None:
        core = self._core
        with Batch(core.index) as batch:
            rows = self._live_rows(batch, number, now)
            row = batch.segment(number)
            row.oldest_at = min((one.slot.last_used_at for one in rows), default=now)
            is_sparse = row.live_pages * PAGE_BYTES <= row.size_bytes * _CARRY_SHARE
            if row.state is SegmentState.ACTIVE and not rows and row.write_bytes:
                batch.seal_segment(number)
            elif row.state is SegmentState.SEALED and is_sparse and not core.pins.is_pinned(number):
                self._carry(batch, rows)
            self._commit(batch)

    def _compact(self) -> bool:
        """Empty the segment with the fewest live pages, if those are few enough and there is room for them."""
        core, table = self._core, self._core.index.segments
        numbers = [number for number in table.sealed if not core.pins.is_pinned(number)]
        if not numbers:
            return False
        number = min(numbers, key=lambda one: table.rows[one].live_pages)
        row, now = table.rows[number], core.now()
        if row.live_pages * PAGE_BYTES > row.size_bytes * _COMPACT_SHARE[self._when_full]:
            return False
        with Batch(core.index) as batch:
            rows = self._live_rows(batch, number, now)
            is_emptied = self._carry(batch, rows) == len(rows)
            self._commit(batch)
        return is_emptied

    def _evict_oldest(self, *, is_carrying: bool = True) -> bool:
        """Take back the oldest segment that nobody holds; False when there is none."""
        core, table = self._core, self._core.index.segments
        number = next((one for one in table.oldest_first() if not core.pins.is_pinned(one)), None)
        if number is None:
            return False
        now = core.now()
        with Batch(core.index) as batch:
            rows = self._live_rows(batch, number, now)
            kept = _recently_used(rows, table.rows[number].size_bytes * _CARRY_SHARE) if is_carrying else []
            carried = {row.id_bytes for row in kept[: self._carry(batch, kept)]}
            gone = [row for row in rows if row.id_bytes not in carried and batch.get(row.id_bytes) is not None]
            for row in gone:
                batch.drop(row.id_bytes, row.slot, "budget")
            self._commit(batch)
        if gone:
            self.retention_seconds = min(now - row.slot.last_used_at for row in gone)
        return True

    def _live_rows(self, batch: Batch, number: int, now: float) -> list[Row]:
        """The live records of a segment in the order of their places, touches written. Its expired ones are dropped."""
        core, rows = self._core, list[Row]()
        for page, id_bytes in batch.places(number):
            slot = batch.get(id_bytes)
            if slot is None or (slot.segment, slot.page) != (number, page):
                core.index.is_damaged = True
                continue
            used_at = core.last_used(id_bytes, slot)
            is_touched = core.touches.times.get(id_bytes, -1.0) >= slot.last_used_at
            if is_touched:
                slot = slot._replace(last_used_at=used_at, flags=slot.flags | USED)
            if core.is_live(used_at, now):
                rows.append(Row(id_bytes, slot))
                if is_touched:
                    batch.update(id_bytes, slot)
            else:
                batch.drop(id_bytes, slot, "expired")
        return rows

    def _carry(self, batch: Batch, rows: list[Row]) -> int:
        """Copy records to the active segment, from the reserve too; returns how many of ``rows`` were dealt with.

        Those are the first ones: copied, or dropped because their bytes are damaged. The others found no room.
        """
        core, carried_bytes, done = self._core, 0, 0
        for row in rows:
            image = self._read(row)
            if image is None:
                batch.drop(row.id_bytes, row.slot, "corrupt")
                done += 1
                continue
            place = core.space.place(batch, row.size_bytes, reserve=0)
            if place is None:
                break
            core.files.write(place.segment, place.offset, [image])
            moved = row.slot._replace(segment=place.segment, page=place.page, flags=row.slot.flags & ~(USED | RELAXED))
            batch.move(row.id_bytes, row.slot, moved)
            carried_bytes += row.slot.length_bytes
            done += 1
        if carried_bytes:
            core.files.sync()
            core.observer.moved(core.name, "carry", carried_bytes)
        return done

    def _read(self, row: Row) -> memoryview | None:
        """The image of a record; None when it is lost."""
        try:
            payload = self._core.loader.read(row.entry(), (row.slot.segment, row.slot.page))
        except OSError as error:
            self._core.medium.read_failed(error)
            self._core.fault("io")
            return None
        if payload is None:
            self._core.fault("corrupt")
            return None
        return image_around(payload)

    def _commit(self, batch: Batch) -> None:
        batch.commit()
        self._core.report(batch.dropped)
        if self._core.index.is_damaged:
            repair(self._core)


def _recently_used(rows: list[Row], limit_bytes: float) -> list[Row]:
    """The records used since they were put there, most recently used first, up to a number of bytes."""
    kept: list[Row] = []
    for row in sorted((row for row in rows if row.is_used), key=lambda row: row.slot.last_used_at, reverse=True):
        limit_bytes -= row.size_bytes
        if limit_bytes < 0:
            break
        kept.append(row)
    return sorted(kept, key=lambda row: row.slot.page)
