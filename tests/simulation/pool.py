"""A pool as a remote one is: it can be out of reach, and what it holds for a plan may go all the same."""

from collections.abc import Sequence

from kvshelf_client.words import MissReason
from storage.base import Entry, Hold, Loaded, Miss, Record, RecordId, WriteOutcome, WriteResult
from storage.memory import MemoryTier


class RemotePool(MemoryTier):
    """An in-process pool without its firm holds. While ``is_away`` it answers as one that cannot be reached."""

    is_away = False

    def lookup(self, ids: Sequence[RecordId]) -> list[Entry | Miss]:
        """See :meth:`Tier.lookup`."""
        return [Miss(one, MissReason.TIER_DOWN) for one in ids] if self.is_away else super().lookup(ids)

    def hold(self, ids: Sequence[RecordId]) -> Hold:
        """See :meth:`Tier.hold`. It pins nothing."""
        return RemoteHold(self, self.lookup(ids))

    def read(self, ids: Sequence[RecordId]) -> list[Loaded | Miss]:
        """Read records as they are now."""
        if self.is_away:
            return [Miss(one, MissReason.TIER_DOWN) for one in ids]
        hold = super().hold(ids)
        try:
            return hold.read(0, len(ids))
        finally:
            hold.release()

    def write(self, records: Sequence[Record], *, durable: bool) -> list[WriteResult]:
        """See :meth:`Tier.write`."""
        if self.is_away:
            return [WriteResult(record.id, WriteOutcome.TIER_DOWN) for record in records]
        return super().write(records, durable=durable)

    def touch(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.touch`."""
        return 0 if self.is_away else super().touch(ids)

    def delete(self, ids: Sequence[RecordId], *, cause: str = "deleted") -> int:
        """See :meth:`Tier.delete`."""
        return 0 if self.is_away else super().delete(ids, cause=cause)

    def is_up(self) -> bool:
        """See :meth:`Tier.is_up`."""
        return not self.is_away


class RemoteHold(Hold):
    """Remembers what was there, and reads what is there now."""

    def __init__(self, pool: RemotePool, entries: list[Entry | Miss]) -> None:
        self.entries = entries
        self._pool = pool
        self._is_released = False

    def read(self, start: int, end: int) -> list[Loaded | Miss]:
        """See :meth:`Hold.read`."""
        if self._is_released:
            raise ValueError("this hold was released")
        held = self.entries[start:end]
        now = iter(self._pool.read([one.id for one in held if isinstance(one, Entry)]))
        return [one if isinstance(one, Miss) else self._as_held(one, next(now)) for one in held]

    def keep(self, start: int, end: int) -> None:
        """See :meth:`Hold.keep`."""
        self.entries = self.entries[start:end]

    def release(self) -> None:
        """See :meth:`Hold.release`."""
        self._is_released = True

    def _as_held(self, entry: Entry, found: Loaded | Miss) -> Loaded | Miss:
        if isinstance(found, Loaded) and found.entry.provenance < entry.provenance:
            return Miss(entry.id, MissReason.EVICTED)
        return found
