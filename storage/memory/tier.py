"""The in-process pool: the embedded default of the DRAM shelf, and the plainest tier that keeps the contract.

Records sit in one table in the order of their last use, so its front is both the next to expire and the next to go
when the budget is short. Holds pin: what they hold stays in memory, and in the accounts, until they are released.
"""

import heapq
import threading
from collections.abc import Sequence

from kvshelf_client.frames import checksum_of
from kvshelf_client.words import MissReason
from storage.base import (
    Entry,
    Hold,
    Loaded,
    Miss,
    Page,
    Payload,
    Record,
    RecordId,
    SilentObserver,
    Tier,
    TierObserver,
    Usage,
    WriteOutcome,
    WriteResult,
    pack_id,
)
from storage.clock import Clock
from storage.ghosts import Ghosts, reason_of
from storage.integrity import expect
from storage.memory.hold import MemoryHold
from storage.memory.slots import RECORD_OVERHEAD_BYTES, Slot, SlotTable

MAINTAIN_RECORDS = 4096
"""Most records one step of upkeep takes back."""


class MemoryTier(Tier):
    """Records in this process's memory. Life is judged by the monotonic clock: a clock step expires nothing.

    Payloads are kept by reference (a memoryview is copied, since it could pin a far larger buffer).

    Args:
        clock: what time it is.
        ttl_seconds: life after the last use, more than 0.
        budget_bytes: payloads, overhead and what holds still pin stay within this. A write that finds no room evicts
            the least recently used records nobody holds; when those do not suffice it is ``FULL``.
        observer: who is told of it.
        name: the tier's metric label.
        ghost_limit: how many dropped records keep their reason.

    Raises:
        ValueError: a number is out of its range.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        ttl_seconds: float,
        budget_bytes: int,
        observer: TierObserver | None = None,
        name: str = "dram",
        ghost_limit: int = 65_536,
    ) -> None:
        if ttl_seconds <= 0 or budget_bytes <= 0:
            raise ValueError(f"ttl_seconds and budget_bytes must be above 0, got {ttl_seconds} and {budget_bytes}")
        self.name = name
        self._clock = clock
        self._ttl_seconds = ttl_seconds
        self._budget_bytes = budget_bytes
        self._observer = observer or SilentObserver()
        self._ghosts = Ghosts(ghost_limit)
        self._lock = threading.RLock()
        self._slots = SlotTable()
        self._generation = 0
        self._is_closed = False

    @property
    def is_durable(self) -> bool:
        """False: memory."""
        return False

    def lookup(self, ids: Sequence[RecordId]) -> list[Entry | Miss]:
        """See :meth:`Tier.lookup`."""
        with self._lock:
            self._check_open()
            return [slot.entry if isinstance(slot, Slot) else slot for slot in map(self._find, ids)]

    def hold(self, ids: Sequence[RecordId]) -> Hold:
        """See :meth:`Tier.hold`. Firm: what is held stays readable, whatever happens to the record."""
        with self._lock:
            self._check_open()
            found = [self._find(record_id) for record_id in ids]
            self._slots.pin(slot for slot in found if isinstance(slot, Slot))
        return MemoryHold(found, self._load, self._unpin)

    def write(self, records: Sequence[Record], *, durable: bool) -> list[WriteResult]:  # noqa: ARG002 - memory never is
        """See :meth:`Tier.write`."""
        are_sound = [checksum_of(record.payload) == record.checksum for record in records]
        with self._lock:
            self._check_open()
            return [
                self._write_one(record) if is_sound else WriteResult(record.id, WriteOutcome.CORRUPT)
                for record, is_sound in zip(records, are_sound, strict=True)
            ]

    def touch(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.touch`."""
        with self._lock:
            self._check_open()
            live = [slot for slot in map(self._find, ids) if isinstance(slot, Slot)]
            for slot in live:
                self._renew(slot)
            return len(live)

    def delete(self, ids: Sequence[RecordId], *, cause: str = "deleted") -> int:
        """See :meth:`Tier.delete`. An expired record counts as not there, and goes too."""
        with self._lock:
            self._check_open()
            count = 0
            for record_id in ids:
                slot = self._slots.get(record_id)
                if slot is not None:
                    count += self._is_live(slot)
                    self._drop(slot, cause if self._is_live(slot) else "expired")
            return count

    def scan(self, prefix: bytes, cursor: bytes = b"", limit: int = 1024) -> Page:
        """See :meth:`Tier.scan`."""
        with self._lock:
            self._check_open()
            after = [
                (pack_id(slot.entry.id), slot.entry) for slot in self._slots if slot.entry.id.key.startswith(prefix)
            ]
        page = heapq.nsmallest(limit, (one for one in after if one[0] > cursor))
        return Page([entry for _, entry in page], page[-1][0] if len(page) == limit else None)

    def erase(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.erase`."""
        with self._lock:
            for record_id in ids:
                slot = self._slots.get(record_id)
                if slot is not None:
                    slot.is_erased = True
            return self.delete(ids)

    def maintain(self) -> None:
        """Take back what expired, at most ``MAINTAIN_RECORDS`` records."""
        with self._lock:
            self._check_open()
            for _ in range(MAINTAIN_RECORDS):
                oldest = next(iter(self._slots), None)
                if oldest is None or self._is_live(oldest):
                    return
                self._drop(oldest, "expired")

    def usage(self) -> Usage:
        """See :meth:`Tier.usage`. ``used_bytes`` has an overhead a record, and what only holds keep in memory."""
        with self._lock:
            slots = self._slots
            return Usage(
                records=len(slots),
                live_bytes=slots.live_bytes,
                used_bytes=slots.used_bytes,
                budget_bytes=self._budget_bytes,
                pinned_bytes=slots.pinned_bytes,
                owners=slots.owners,
                filled_bytes=slots.used_bytes,
            )

    def is_up(self) -> bool:
        """Always, until it is closed."""
        return not self._is_closed

    def check_integrity(self) -> None:
        """Add everything up again and compare with the running accounts."""
        with self._lock:
            self._slots.check()
            used = self._slots.used_bytes
            expect(used <= self._budget_bytes, f"{used} bytes used of a budget of {self._budget_bytes}")

    def close(self) -> None:
        """Let go of everything that is not held."""
        with self._lock:
            self._is_closed = True
            for slot in list(self._slots):
                self._slots.remove(slot)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"the {self.name} tier is closed")

    def _is_live(self, slot: Slot) -> bool:
        return self._clock.monotonic() < slot.deadline

    def _find(self, record_id: RecordId) -> Slot | Miss:
        slot = self._slots.get(record_id)
        if slot is None:
            return Miss(record_id, self._ghosts.reason(record_id))
        return slot if self._is_live(slot) else Miss(record_id, MissReason.EXPIRED)

    def _renew(self, slot: Slot) -> None:
        slot.deadline = self._clock.monotonic() + self._ttl_seconds
        slot.entry = slot.entry._replace(last_used_at=self._clock.now())
        self._slots.used(slot)

    def _write_one(self, record: Record) -> WriteResult:
        old = self._slots.get(record.id)
        if old is not None and not self._is_live(old):
            self._drop(old, "expired")
            old = None
        if old is not None and record.provenance <= old.entry.provenance:
            self._renew(old)
            return WriteResult(record.id, WriteOutcome.DUPLICATE, old.entry.generation)
        if not self._make_room(memoryview(record.payload).nbytes + RECORD_OVERHEAD_BYTES, old):
            self._observer.fault(self.name, "full")
            return WriteResult(record.id, WriteOutcome.FULL, old.entry.generation if old else 0)
        if old is not None:
            self._drop(old, "replaced")
        outcome = WriteOutcome.STORED if old is None else WriteOutcome.REPLACED
        return WriteResult(record.id, outcome, self._put(record))

    def _put(self, record: Record) -> int:
        self._generation += 1
        now, length = self._clock.now(), memoryview(record.payload).nbytes
        payload = _own(record.payload)
        entry = Entry(
            record.id,
            record.provenance,
            length,
            record.checksum,
            self._generation,
            now,
            now,
            record.supersedes,
            record.label,
        )
        self._slots.add(Slot(entry, payload, record.owner, self._clock.monotonic() + self._ttl_seconds))
        self._ghosts.forget([record.id])
        self._observer.moved(self.name, "write", length)
        return self._generation

    def _make_room(self, need_bytes: int, old: Slot | None) -> bool:
        """Evict for a record that takes the place of ``old``: the least recently used that nobody holds, in order.

        Evicts nothing when that would not suffice. ``old`` itself is left to the caller.
        """
        free = self._budget_bytes - self._slots.used_bytes
        if old is not None and not old.pins:
            free += old.cost_bytes
        going: list[Slot] = []
        for slot in self._slots:
            if need_bytes <= free or need_bytes > self._budget_bytes:
                break
            if not slot.pins and slot is not old:
                going.append(slot)
                free += slot.cost_bytes
        if need_bytes > free:
            return False
        for slot in going:
            self._drop(slot, "budget" if self._is_live(slot) else "expired")
        return True

    def _drop(self, slot: Slot, cause: str) -> None:
        entry = slot.entry
        self._slots.remove(slot)
        self._ghosts.note(entry.id, reason_of(cause))
        self._observer.evicted(self.name, cause, 1, entry.length_bytes)
        if cause == "expired":
            lived = entry.last_used_at + self._ttl_seconds - entry.created_at
            self._observer.age_at_expiry(self.name, max(0.0, lived))

    def _unpin(self, slots: Sequence[Slot]) -> None:
        with self._lock:
            self._slots.unpin(slots)

    def _load(self, slot: Slot, entry: Entry) -> Loaded | Miss:
        if slot.is_erased:
            return Miss(entry.id, MissReason.NEVER_STORED)
        if checksum_of(slot.payload) != entry.checksum:
            self._observer.fault(self.name, "corrupt")
            with self._lock:
                if slot.is_listed:
                    self._drop(slot, "corrupt")
            return Miss(entry.id, MissReason.CORRUPT)
        self._observer.moved(self.name, "read", entry.length_bytes)
        return Loaded(entry, memoryview(slot.payload).toreadonly())


def _own(payload: Payload) -> Payload:
    """A payload that pins nothing beside itself."""
    if not isinstance(payload, memoryview):
        return payload
    whole = payload.obj
    return whole if isinstance(whole, bytearray) and len(whole) == payload.nbytes else bytes(payload)
