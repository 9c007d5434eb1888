"""The SSD tier: records in segment files, named by an LMDB index. See docs/on-disk-format.md."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import lmdb

from storage.base import (
    Entry,
    Hold,
    Miss,
    Page,
    Record,
    RecordId,
    SilentObserver,
    Tier,
    TierAwayError,
    TierObserver,
    Usage,
    Wiped,
    WriteOutcome,
    WriteResult,
)
from storage.clock import Clock
from storage.ssd.batch import Batch, Dropped
from storage.ssd.checking import check
from storage.ssd.commit_queue import CommitQueue
from storage.ssd.erasing import overwrite, wipe_segment
from storage.ssd.format import HEADER_BYTES
from storage.ssd.hold import SsdHold
from storage.ssd.ids import id_bytes_of
from storage.ssd.images import payload_in
from storage.ssd.opening import damage_in_words, open_core
from storage.ssd.reading import Reader
from storage.ssd.recycle import Recycler
from storage.ssd.segments import SegmentFiles
from storage.ssd.sizing import WhenFull
from storage.ssd.upkeep import drop_quarantined, try_medium, write_touches
from storage.ssd.writing import Writer, is_sound

SEGMENTS_PER_STEP = 4
"""Most segments whose expired records one step of upkeep drops."""


class SsdTier(Tier):
    """Records on an SSD, within a budget that covers segments and index together and survives restarts.

    One process at a time may have a directory open; the caller sees to that. Never fork while a tier is open.

    Args:
        directory: the data directory; made when it is not there.
        clock: what time it is. The tier's own time follows the wall clock but never goes back, over restarts either.
        ttl_seconds: life after the last use, more than 0.
        budget_bytes: what the tier may take on the medium. Opening with less than before evicts down to it.
        observer: who is told what happens.
        max_record_bytes: the largest payload that must fit; 0 to let the budget decide, see :attr:`max_record_bytes`.
        when_full: what to do when the budget is spent on live records.
        name: the tier's metric label.
        ghost_limit: how many dropped records keep their reason.
        memory_bytes: how much of what was written or read last is kept in memory, to be read again without the medium.
        make_files: opens the directory of the segment files; tests put faults there.

    Raises:
        ValueError: a number is out of its range, or the budget is too small for records of ``max_record_bytes``.
        UnusableDirectoryError: the directory has another on-disk format, or its index is damaged beyond use.
        OSError: the directory cannot be read or written.
    """

    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock,
        ttl_seconds: float,
        budget_bytes: int,
        observer: TierObserver | None = None,
        max_record_bytes: int = 0,
        when_full: WhenFull = WhenFull.EVICT,
        name: str = "ssd",
        ghost_limit: int = 65_536,
        memory_bytes: int = 0,
        make_files: Callable[[Path], SegmentFiles] = SegmentFiles,
    ) -> None:
        if ttl_seconds <= 0 or budget_bytes <= 0 or max_record_bytes < 0:
            raise ValueError(
                "ttl_seconds and budget_bytes must be above 0 and max_record_bytes at least 0,"
                f" got {ttl_seconds}, {budget_bytes} and {max_record_bytes}"
            )
        self.name = name
        self._core = open_core(
            directory,
            name=name,
            clock=clock,
            observer=observer or SilentObserver(),
            ttl_seconds=ttl_seconds,
            budget_bytes=budget_bytes,
            max_record_bytes=max_record_bytes,
            ghost_limit=ghost_limit,
            memory_bytes=memory_bytes,
            make_files=make_files,
        )
        self._lock = threading.Lock()
        self._recycler = Recycler(self._core, WhenFull(when_full))
        self._fit_budget(directory)
        self._reader = Reader(self._core, self._settle)
        self._writer = Writer(self._core, self._recycler, WhenFull(when_full))
        self._queue = CommitQueue(self._lock, self._writer.write_group)

    @property
    def is_durable(self) -> bool:
        """True: see docs/on-disk-format.md."""
        return True

    @property
    def max_record_bytes(self) -> int:
        """The largest payload this tier takes; a larger one is ``FULL``."""
        return self._core.space.segment_bytes - HEADER_BYTES

    @property
    def retention_seconds(self) -> float | None:
        """How long after its last use the youngest record went that the last forced eviction dropped; None: none yet.

        While the budget lasts nothing is forced, and records live their TTL.
        """
        return self._recycler.retention_seconds

    def lookup(self, ids: Sequence[RecordId]) -> list[Entry | Miss]:
        """See :meth:`Tier.lookup`."""
        with self._core.gate:
            return self._reader.find(ids).entries

    def hold(self, ids: Sequence[RecordId]) -> Hold:
        """See :meth:`Tier.hold`. Firm: what is held stays readable, whatever happens to the record."""
        with self._core.gate:
            return SsdHold(self._reader.find_pinned(ids), self._reader, self._core.pins)

    def write(self, records: Sequence[Record], *, durable: bool) -> list[WriteResult]:
        """See :meth:`Tier.write`. Callers at the same time share a commit.

        A call of more than 1/8 of the budget takes several commits.
        """
        sound = [is_sound(record) for record in records]
        with self._core.gate:
            good = [record for record, is_good in zip(records, sound, strict=True) if is_good]
            results = iter(self._queue.run(good, durable=durable) if good else [])
            return [
                next(results) if is_good else WriteResult(record.id, WriteOutcome.CORRUPT)
                for record, is_good in zip(records, sound, strict=True)
            ]

    def allocate(self, length_bytes: int) -> memoryview:
        """See :meth:`Tier.allocate`. What is written from here is not copied, and is kept in memory."""
        return payload_in(self._core.images.take(length_bytes), length_bytes)

    def touch(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.touch`."""
        with self._core.gate:
            entries = self._reader.find(ids).entries
            live = id_bytes_of([one.id for one in entries if isinstance(one, Entry)])
            self._core.touches.add(live, self._core.now())
            return len(live)

    def delete(self, ids: Sequence[RecordId], *, cause: str = "deleted") -> int:
        """See :meth:`Tier.delete`. 0 when the tier is in trouble."""
        keys = id_bytes_of(ids)
        with self._core.gate, self._lock:
            try:
                return self._drop(keys, cause)[0]
            except (lmdb.Error, OSError) as error:
                self._core.write_failed(error)
                return 0

    def erase(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.erase`."""
        keys = id_bytes_of(ids)
        with self._core.gate, self._lock:
            try:
                count, dropped = self._drop(keys, "deleted")
                overwrite(self._core, dropped)
            except (lmdb.Error, OSError) as error:
                self._core.write_failed(error)
                raise TierAwayError(f"the {self.name} tier does not erase: {error}") from None
            return count

    def scan(self, prefix: bytes, cursor: bytes = b"", limit: int = 1024) -> Page:
        """See :meth:`Tier.scan`."""
        with self._core.gate:
            return self._reader.scan(prefix, cursor, limit)

    def wipe(self, cursor: int = 0) -> Wiped:
        """See :meth:`Tier.wipe`. One segment a step."""
        with self._core.gate, self._lock:
            try:
                return wipe_segment(self._core, cursor)
            except (lmdb.Error, OSError) as error:
                self._core.write_failed(error)
                raise TierAwayError(f"the {self.name} tier cannot be wiped: {error}") from None

    def maintain(self) -> None:
        """See :meth:`Tier.maintain`. After it, what was written relaxed is durable too."""
        core = self._core
        with core.gate:
            core.images.give_up_idle()
            try:
                with self._lock:
                    try_medium(core)
                    drop_quarantined(core)
                while self._write_touches():
                    pass
                with self._lock:
                    self._recycler.shrink_to_budget()
                for _ in range(SEGMENTS_PER_STEP):
                    with self._lock:
                        if not self._recycler.sweep_one():
                            break
                with self._lock:
                    core.files.sync()
                    core.index.sync()
            except (lmdb.Error, OSError) as error:
                core.write_failed(error)

    def usage(self) -> Usage:
        """See :meth:`Tier.usage`. ``pinned_bytes`` are those of the segments that holds keep from being reused."""
        with self._core.gate:
            core, table = self._core, self._core.index.segments
            rows = [table.rows.get(number) for number in core.pins.pinned()]
            oldest_at = min(
                (row.oldest_at for row in list(table.rows.values()) if row.live_records), default=core.now()
            )
            return Usage(
                records=table.live_records,
                live_bytes=table.live_bytes,
                used_bytes=core.space.used_bytes(),
                budget_bytes=core.space.budget_bytes,
                pinned_bytes=sum(row.size_bytes for row in rows if row is not None),
                owners=core.index.owners.live_bytes(),
                expiry_lag_seconds=max(0.0, core.now() - oldest_at - core.ttl_seconds),
                filled_bytes=core.space.filled_bytes(),
            )

    def is_up(self) -> bool:
        """Whether the last read of index or segments succeeded."""
        return self._core.medium.unreadable is None and not self._core.gate.is_closed

    def trouble(self) -> str | None:
        """See :meth:`Tier.trouble`."""
        return self._core.medium.trouble()

    def check_integrity(self) -> None:
        """Read the whole index (no payloads) and compare it with the accounts and the files."""
        with self._core.gate, self._lock:
            check(self._core)

    def close(self) -> None:
        """Write what is batched, sync, and let go of all files. Waits for operations that run."""
        if not self._core.gate.close():
            return
        with self._lock:
            try:
                drop_quarantined(self._core)
                while write_touches(self._core):
                    pass
                self._core.files.sync()
            except (lmdb.Error, OSError) as error:
                self._core.write_failed(error)
            self._writer.close()
            self._core.loader.close()
            self._core.files.close()
            try:
                self._core.index.close()
            except lmdb.Error as error:
                self._core.write_failed(error)

    def _fit_budget(self, directory: Path) -> None:
        try:
            with damage_in_words(directory):
                self._recycler.shrink_to_budget(is_opening=True)
                self._core.space.compact_index()
        except BaseException:  # whatever it was, another attempt must find the index closed
            self._core.loader.close()
            self._core.index.env.close()
            raise

    def _write_touches(self) -> bool:
        with self._lock:
            return write_touches(self._core)

    def _drop(self, keys: list[bytes], cause: str) -> tuple[int, list[Dropped]]:
        core, count, now = self._core, 0, self._core.now()
        drop_quarantined(core)
        with Batch(core.index) as batch:
            for id_bytes in keys:
                slot = batch.get(id_bytes)
                if slot is not None:
                    used_at = core.last_used(id_bytes, slot)
                    is_live = core.is_live(used_at, now)
                    count += is_live
                    batch.drop(id_bytes, slot._replace(last_used_at=used_at), cause if is_live else "expired")
            if batch.dropped:
                batch.commit()
        core.index.sync()
        core.report(batch.dropped)
        return count, batch.dropped

    def _settle(self) -> None:
        """Take damaged records out of the index, unless the writer is busy: then it will do so itself."""
        if self._lock.acquire(blocking=False):
            try:
                drop_quarantined(self._core)
            except (lmdb.Error, OSError) as error:
                self._core.write_failed(error)
            finally:
                self._lock.release()
