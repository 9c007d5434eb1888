"""Where the next record goes, and how many segments the budget allows."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from storage.clock import Clock
from storage.ssd.batch import Batch
from storage.ssd.format import PAGE_BYTES
from storage.ssd.index import Index
from storage.ssd.medium import Medium, is_no_space
from storage.ssd.pins import Pins
from storage.ssd.rows import SegmentState
from storage.ssd.segments import SegmentFiles
from storage.ssd.sizing import MIN_SEGMENTS, index_margin_bytes

RESERVE = 1
"""Free segments that only records carried forward may go to, so that space can always be taken back."""

_GROW_AGAIN_SECONDS = 30.0
_INDEX_PART = 64
_LOOSE_FACTOR = 2


class Place(NamedTuple):
    """Where a record is put."""

    segment: int
    offset: int

    @property
    def page(self) -> int:
        """The offset in pages, as the index keeps it."""
        return self.offset // PAGE_BYTES


class Space:
    """The segments as room for records. Used by the writer alone.

    Args:
        index: has the segments' rows.
        files: their files.
        pins: who holds them.
        clock: when to ask a full file system again.
        medium: told when it is full.
        budget_bytes: what files and index may take together.
        segment_bytes: the size of new segments.
    """

    def __init__(
        self,
        index: Index,
        files: SegmentFiles,
        pins: Pins,
        clock: Clock,
        medium: Medium,
        *,
        budget_bytes: int,
        segment_bytes: int,
    ) -> None:
        self._index, self._files, self._pins = index, files, pins
        self.budget_bytes = budget_bytes
        self.segment_bytes = segment_bytes
        self._margin_bytes = index_margin_bytes(budget_bytes)
        self._clock, self._medium = clock, medium
        self._grow_after = 0.0

    def used_bytes(self) -> int:
        """What files and index take."""
        return self._index.segments.file_bytes + self._index.file_bytes()

    def filled_bytes(self) -> int:
        """What was written of the segments that are not free, and the index."""
        rows = list(self._index.segments.rows.values())
        written_bytes = sum(row.write_bytes for row in rows if row.state is not SegmentState.FREE)
        return written_bytes + self._index.file_bytes()

    def free_segments(self) -> Iterator[int]:
        """The free segments of the right size that nobody holds, those freed first coming first."""
        rows, is_pinned = self._index.segments.rows, self._pins.is_pinned
        return (
            number
            for number in self._index.segments.free
            if rows[number].size_bytes == self.segment_bytes and not is_pinned(number)
        )

    def has_free(self, count: int) -> bool:
        """Whether there are so many free segments. Looks at no more than it must."""
        return sum(1 for _ in islice(self.free_segments(), count)) == count

    def fits(self, sizes: Iterable[int]) -> bool:
        """Whether records of these padded sizes, in order, find room without the reserve."""
        table = self._index.segments
        row = table.rows[table.active] if table.active is not None else None
        left = row.size_bytes - row.write_bytes if row is not None else 0
        segments = 0
        for size in sizes:
            if size > left:
                segments += 1
                left = self.segment_bytes
            left -= size
        return segments == 0 or self.has_free(segments + RESERVE)

    def place(self, batch: Batch, size: int, reserve: int = RESERVE) -> Place | None:
        """Room for ``size`` bytes in the active segment or a new one; None when all but ``reserve`` are taken."""
        active = batch.active()
        if active is not None:
            row = batch.segment(active)
            if row.write_bytes + size <= row.size_bytes:
                row.write_bytes += size
                return Place(active, row.write_bytes - size)
        if size > self.segment_bytes:
            return None
        number = self._claim(batch, reserve)
        if number is None:
            return None
        if active is not None:
            batch.seal_segment(active)
        if not self._index.is_durable(self._index.segments.free[number]):
            self._index.sync()  # what freed the segment must be durable before the segment is written over
        batch.open_segment(number)
        batch.segment(number).write_bytes = size
        return Place(number, 0)

    def grow(self) -> bool:
        """Add a free segment when the budget and the medium have room for one."""
        if self.used_bytes() + self.segment_bytes + self._margin_bytes > self.budget_bytes:
            return False
        if self._clock.monotonic() < self._grow_after:
            return False
        number = self._index.segments.next_number()
        try:
            self._files.create(number, self.segment_bytes)
        except OSError as error:
            if not is_no_space(error):
                raise
            self._medium.no_space()
            self._grow_after = self._clock.monotonic() + _GROW_AGAIN_SECONDS
            return False
        with Batch(self._index) as batch:
            batch.add_segment(number, self.segment_bytes)
            batch.commit()
        return True

    def is_over_budget(self, *, is_opening: bool = False) -> bool:
        """Whether a segment must be given up for the index to grow.

        At opening the index is taken for no larger than :meth:`compact_index` can make it.
        """
        return self._taken_bytes(is_opening) + self._margin_bytes // 2 > self.budget_bytes

    def is_cramped(self, *, is_opening: bool = False) -> bool:
        """Whether segments of another size leave no room for one to write to and the reserve.

        At opening the index is taken for what :meth:`is_over_budget` takes it for.
        """
        lacking = RESERVE + 1 - sum(1 for _ in islice(self.free_segments(), RESERVE + 1))
        need = lacking * self.segment_bytes + self._margin_bytes
        return self.has_misfits() and self._taken_bytes(is_opening) + need > self.budget_bytes

    def has_misfits(self) -> bool:
        """Whether there are segments of another size than new ones have: the budget was another when they were made."""
        return any(row.size_bytes != self.segment_bytes for row in self._index.segments.rows.values())

    def seal_misfit(self) -> None:
        """Write no more to an active segment of another size than new ones have, so that it can be taken back."""
        table = self._index.segments
        if table.active is not None and table.rows[table.active].size_bytes != self.segment_bytes:
            with Batch(self._index) as batch:
                batch.seal_segment(table.active)
                batch.commit()

    def compact_index(self) -> None:
        """Write the index anew if it takes much of the budget, or too much, and most is empty. Only while opening."""
        size = self._index.file_bytes()
        is_large = size > self.budget_bytes // _INDEX_PART or self.is_over_budget() or self.is_cramped()
        if is_large and size > _LOOSE_FACTOR * self._index.live_bytes():
            self._index.compact()

    def is_smallest(self) -> bool:
        """Whether there are no more segments than a tier needs to work."""
        return len(self._index.segments.rows) <= MIN_SEGMENTS

    def shrink(self) -> bool:
        """Remove a free segment; False when there is none to spare."""
        number = next(self.free_segments(), None)
        if number is None or self.is_smallest() or not self._pins.claim(number):
            return False
        self.remove(number)
        return True

    def remove_misfits(self) -> bool:
        """Remove free segments of another size than new ones have."""
        rows = self._index.segments.rows
        misfits = [number for number in self._index.segments.free if rows[number].size_bytes != self.segment_bytes]
        claimed = [number for number in misfits if self._pins.claim(number)]
        for number in claimed:
            self.remove(number)
        return bool(claimed)

    def remove(self, number: int) -> None:
        """Remove a claimed segment: first its name, durably, then its file."""
        with Batch(self._index) as batch:
            batch.remove_segment(number)
            batch.commit()
        self._index.sync()
        self._files.remove(number)

    def _taken_bytes(self, is_opening: bool) -> int:
        index_bytes = self._index.file_bytes()
        if is_opening:
            index_bytes = min(index_bytes, _LOOSE_FACTOR * self._index.live_bytes())
        return self._index.segments.file_bytes + index_bytes

    def _claim(self, batch: Batch, reserve: int) -> int | None:
        """A free segment for writing that nobody holds, leaving ``reserve`` of them."""
        free = list(islice((number for number in self.free_segments() if not batch.is_changed(number)), reserve + 1))
        return free[0] if len(free) > reserve and self._pins.claim(free[0]) else None
