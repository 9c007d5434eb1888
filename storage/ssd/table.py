"""The committed rows of all segments and owners in memory, so that usage and recycling read no index."""

from collections.abc import Iterator

from storage.ssd.rows import OwnerRow, SegmentRow, SegmentState


class SegmentTable:
    """Segments by number, with what they add up to. Not thread-safe: one writer at a time applies changes.

    ``free`` maps a free segment to the commit that freed it, those freed first coming first; ``sealed`` has the sealed
    ones in the order in which they were opened for writing.
    """

    def __init__(self) -> None:
        self.rows: dict[int, SegmentRow] = {}
        self.free: dict[int, int] = {}
        self.sealed: dict[int, None] = {}
        self.active: int | None = None
        self.file_bytes = 0
        self.live_bytes = 0
        self.live_records = 0

    def load(self, rows: dict[int, SegmentRow]) -> None:
        """Start over from the rows of the index."""
        self.__init__()  # type: ignore[misc]
        for number in sorted(rows, key=lambda number: rows[number].sequence):
            self.apply({number: rows[number]})

    def apply(self, changes: dict[int, SegmentRow | None], commit: int = 0) -> None:
        """Take over rows as they were committed, and by which commit; None means that the segment is no more."""
        for number, row in changes.items():
            self._count(self.rows.get(number), -1)
            self._count(row, 1)
            self._file(number, row, commit)

    def next_number(self) -> int:
        """A number that no segment has."""
        return max(self.rows, default=0) + 1

    def oldest_first(self) -> Iterator[int]:
        """The sealed segments, oldest first; safe against changes while it is consumed."""
        return iter(list(self.sealed))

    def _count(self, row: SegmentRow | None, sign: int) -> None:
        if row is not None:
            self.file_bytes += sign * row.size_bytes
            self.live_bytes += sign * row.live_bytes
            self.live_records += sign * row.live_records

    def _file(self, number: int, row: SegmentRow | None, commit: int) -> None:
        freed_by = self.free.pop(number, commit)
        if self.active == number:
            self.active = None
        if row is None:
            self.rows.pop(number, None)
            self.sealed.pop(number, None)
            return
        self.rows[number] = row
        if row.state is SegmentState.SEALED:
            self.sealed.setdefault(number)
            return
        self.sealed.pop(number, None)
        if row.state is SegmentState.FREE:
            self.free[number] = freed_by
        else:
            self.active = number


class OwnerTable:
    """Owners by their number in the index."""

    def __init__(self) -> None:
        self.rows: dict[int, OwnerRow] = {}
        self.numbers: dict[str, int] = {}

    def load(self, rows: dict[int, OwnerRow]) -> None:
        """Start over from the rows of the index."""
        self.rows, self.numbers = {}, {}
        self.apply(rows)

    def apply(self, changes: dict[int, OwnerRow]) -> None:
        """Take over rows as they were committed; an owner of no records is forgotten."""
        for number, row in changes.items():
            if row.records:
                self.rows[number] = row
                self.numbers[row.name] = number
            elif self.rows.pop(number, None) is not None:
                del self.numbers[row.name]

    def live_bytes(self) -> dict[str, int]:
        """Payload bytes by owner, of those that have any."""
        return {row.name: row.live_bytes for row in list(self.rows.values()) if row.live_bytes}
