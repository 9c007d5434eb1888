"""Several shelves behind one tier, so that what fills one of them takes nothing from the others.

Which shelf a record is on follows from the first bytes of its key: a shelf has its own medium, budget and eviction.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from storage.base import Entry, Hold, Miss, Page, Record, RecordId, Tier, Usage, Wiped, WriteResult
from storage.routed.groups import Group, grouped, merged
from storage.routed.hold import RoutedHold

_NUMBER_BYTES = 2


class RoutedTier(Tier):
    """Shelves of one kind, each record on one of them.

    A call about records of one shelf is that shelf's own call. One about several is cut, so a write is one commit a
    shelf.

    Args:
        shelves: the tiers, all of one name and durability; closed with this one.
        shelf_of: the shelf of all records whose keys start with these ``prefix_bytes``. It must not change while
            records are there.
        prefix_bytes: how much of a key says where it is.

    Raises:
        ValueError: there are no shelves, or they are of several kinds.
    """

    def __init__(self, shelves: Mapping[str, Tier], shelf_of: Callable[[bytes], str], *, prefix_bytes: int) -> None:
        kinds = {(shelf.name, shelf.is_durable) for shelf in shelves.values()}
        if len(kinds) != 1:
            raise ValueError(f"the shelves of a tier are of one kind, not of {sorted(kinds)}")
        ((self.name, self._is_durable),) = kinds
        self.shelves = dict(shelves)
        self._shelf_of = shelf_of
        self._prefix_bytes = prefix_bytes

    @property
    def is_durable(self) -> bool:
        """As the shelves."""
        return self._is_durable

    def lookup(self, ids: Sequence[RecordId]) -> list[Entry | Miss]:
        """See :meth:`Tier.lookup`."""
        return merged([(group, self.shelves[group.shelf].lookup(group.items)) for group in self._cut(ids)], len(ids))

    def hold(self, ids: Sequence[RecordId]) -> Hold:
        """See :meth:`Tier.hold`."""
        groups = self._cut(ids)
        if len(groups) == 1:
            return self.shelves[groups[0].shelf].hold(ids)
        parts: list[tuple[Hold, Sequence[int]]] = []
        try:
            for group in groups:
                parts.append((self.shelves[group.shelf].hold(group.items), group.positions))
        except BaseException:  # Whatever went wrong, nothing may stay held.
            for hold, _ in parts:
                hold.release()
            raise
        return RoutedHold(parts, len(ids))

    def allocate(self, length_bytes: int) -> memoryview:
        """See :meth:`Tier.allocate`. What one shelf gives, all take."""
        return next(iter(self.shelves.values())).allocate(length_bytes)

    def write(self, records: Sequence[Record], *, durable: bool) -> list[WriteResult]:
        """See :meth:`Tier.write`."""
        groups = grouped(records, lambda record: record.id.key[: self._prefix_bytes], self._shelf_of)
        written = [(group, self.shelves[group.shelf].write(group.items, durable=durable)) for group in groups]
        return merged(written, len(records))

    def touch(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.touch`."""
        return sum(self.shelves[group.shelf].touch(group.items) for group in self._cut(ids))

    def delete(self, ids: Sequence[RecordId], *, cause: str = "deleted") -> int:
        """See :meth:`Tier.delete`."""
        return sum(self.shelves[group.shelf].delete(group.items, cause=cause) for group in self._cut(ids))

    def scan(self, prefix: bytes, cursor: bytes = b"", limit: int = 1024) -> Page:
        """See :meth:`Tier.scan`. A prefix that says where its records are is gone through there, any other everywhere.

        A cursor starts with the number of the shelf.
        """
        if len(prefix) >= self._prefix_bytes:
            return self.shelves[self._shelf_of(prefix[: self._prefix_bytes])].scan(prefix, cursor, limit)
        number, inner = int.from_bytes(cursor[:_NUMBER_BYTES], "big"), cursor[_NUMBER_BYTES:]
        shelves = list(self.shelves.values())
        page = shelves[number].scan(prefix, inner, limit)
        if page.cursor is not None:
            return Page(page.entries, number.to_bytes(_NUMBER_BYTES, "big") + page.cursor)
        is_last = number + 1 == len(shelves)
        return Page(page.entries, None if is_last else (number + 1).to_bytes(_NUMBER_BYTES, "big"))

    def erase(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.erase`."""
        return sum(self.shelves[group.shelf].erase(group.items) for group in self._cut(ids))

    def wipe(self, cursor: int = 0) -> Wiped:
        """See :meth:`Tier.wipe`. Shelf after shelf."""
        inner, number = divmod(cursor, len(self.shelves))
        done = list(self.shelves.values())[number].wipe(inner)
        if done.cursor is not None:
            return done._replace(cursor=done.cursor * len(self.shelves) + number)
        is_last = number + 1 == len(self.shelves)
        return done._replace(cursor=None if is_last else number + 1)

    def maintain(self) -> None:
        """See :meth:`Tier.maintain`."""
        for shelf in self.shelves.values():
            shelf.maintain()

    def usage(self) -> Usage:
        """See :meth:`Tier.usage`. All shelves together."""
        usages = [shelf.usage() for shelf in self.shelves.values()]
        owners = sum((Counter(usage.owners) for usage in usages), Counter[str]())
        records, live_bytes, used_bytes, budget_bytes, pinned_bytes = (
            sum(column) for column in zip(*(usage[:5] for usage in usages), strict=True)
        )
        lag_seconds = max(usage.expiry_lag_seconds for usage in usages)
        filled_bytes = sum(usage.filled_bytes for usage in usages)
        return Usage(
            records, live_bytes, used_bytes, budget_bytes, pinned_bytes, dict(owners), lag_seconds, filled_bytes
        )

    def is_up(self) -> bool:
        """See :meth:`Tier.is_up`. Whether all shelves are."""
        return all(shelf.is_up() for shelf in self.shelves.values())

    def trouble(self) -> str | None:
        """See :meth:`Tier.trouble`. That of the first shelf that has any."""
        return next((words for shelf in self.shelves.values() if (words := shelf.trouble()) is not None), None)

    def check_integrity(self) -> None:
        """See :meth:`Tier.check_integrity`."""
        for shelf in self.shelves.values():
            shelf.check_integrity()

    def close(self) -> None:
        """See :meth:`Tier.close`."""
        for shelf in self.shelves.values():
            shelf.close()

    def _cut(self, ids: Sequence[RecordId]) -> list[Group[RecordId]]:
        return grouped(ids, lambda record_id: record_id.key[: self._prefix_bytes], self._shelf_of)
