"""Writing: which records are new, where they go, and in which order bytes, sync and commit happen.

Payloads first, then (where durable) the sync of their segments, then the commit of the index, then its sync. So a crash
at any moment leaves an index that names only what was written, and whatever was acknowledged as durable. What was
written without a sync is marked: before it is acknowledged as durable it is read, and its segment synced.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import lmdb
import xxhash

from storage.base import Record, WriteOutcome, WriteResult
from storage.ssd.batch import Batch
from storage.ssd.commit_queue import Call, Group, Item
from storage.ssd.core import Core
from storage.ssd.format import HEADER_BYTES, PAGE_BYTES, RecordHeader
from storage.ssd.images import image_around, payload_in
from storage.ssd.medium import is_no_space
from storage.ssd.quarantine import note_of
from storage.ssd.recycle import Recycler, Row
from storage.ssd.rows import RELAXED, Slot, unpack_slot
from storage.ssd.sizing import WhenFull
from storage.ssd.spool import Spool
from storage.ssd.upkeep import drop_quarantined, write_touches

_ZEROS = bytes(PAGE_BYTES)
_SLICE_SHARE = 0.125
"""Of the budget: how much one commit may write. A larger call is cut into several."""

_JOINED_BYTES = 32 << 20
"""With padding: whoever was first has waited for so much by then."""

_WRITTEN = {WriteOutcome.STORED, WriteOutcome.REPLACED}


def is_sound(record: Record) -> bool:
    """Whether a record's payload fits its checksum."""
    return xxhash.xxh3_64_intdigest(record.payload) == record.checksum


@dataclass(slots=True)
class _Commit:
    """One commit in the making: what was judged so far, and the payloads that are new, under their generations."""

    batch: Batch
    durable: bool
    is_closed_to_new: bool
    items: list[Item] = field(default_factory=list)
    results: list[WriteResult] = field(default_factory=list)
    payloads: list[tuple[int, memoryview]] = field(default_factory=list)


class Writer:
    """Writes groups of calls. Used under the writer's lock.

    Args:
        core: the tier's state.
        recycler: makes room.
        when_full: what is done when only live records are left.
    """

    def __init__(self, core: Core, recycler: Recycler, when_full: WhenFull) -> None:
        self._core = core
        self._recycler = recycler
        self._when_full = when_full
        self._spool = Spool(core.files)

    def write_group(self, group: Group) -> None:
        """Write the records of all calls, durably when one asks for it, and fill in their results."""
        results: list[WriteResult] = []
        *parts, last = self._slices([item for call in group.calls for item in call.items])
        for part in parts:
            results += self._write_slice(part, group, is_last=False)
        results += self._write_slice(last, group, is_last=True)
        start = 0
        for call in group.calls:
            call.results = results[start : start + len(call.items)]
            start += len(call.items)

    def close(self) -> None:
        """Let go of what writes need. None is under way."""
        self._spool.close()

    def _slices(self, items: list[Item]) -> list[list[Item]]:
        limit = self._core.space.budget_bytes * _SLICE_SHARE
        slices: list[list[Item]] = []
        size = 0
        for item in items:
            if not slices or size + item.size_bytes > limit:
                slices.append([])
                size = 0
            slices[-1].append(item)
            size += item.size_bytes
        return slices

    def _write_slice(self, items: list[Item], group: Group, *, is_last: bool) -> list[WriteResult]:
        """Write some items of a group, the last ones together with whoever joins it meanwhile."""

        def join() -> Sequence[Item]:
            """The records of a call that has come meanwhile; none when there is none, or no room for it."""
            call = group.join(lambda call: self._fits_too(items, call)) if is_last else None
            if call is None:
                return ()
            items.extend(call.items)
            return call.items

        try:
            self._prepare(items)
            return self._commit(items, group.is_durable, join)
        except lmdb.MapFullError:
            self._core.fault("full")
            return _all(items, WriteOutcome.FULL)
        except (lmdb.Error, OSError) as error:
            self._abandon_segment()
            self._core.write_failed(error)
            return _all(items, WriteOutcome.FULL if is_no_space(error) else WriteOutcome.TIER_DOWN)

    def _fits_too(self, items: Sequence[Item], call: Call) -> bool:
        """Whether a call's records find room behind those of a commit that nothing is done for any more."""
        sizes = [item.size_bytes for item in (*items, *call.items)]
        limit = min(_JOINED_BYTES, self._core.space.budget_bytes * _SLICE_SHARE)
        return sum(sizes) <= limit and self._core.space.fits(sizes)

    def _abandon_segment(self) -> None:
        """After a failed write or sync: what the active segment holds beyond its last sync is in doubt, so leave it."""
        active = self._core.index.segments.active
        if active is None:
            return
        try:
            with Batch(self._core.index) as batch:
                batch.seal_segment(active)
                batch.commit()
        except (lmdb.Error, OSError) as error:
            self._core.write_failed(error)

    def _prepare(self, items: list[Item]) -> None:
        """Write what readers left to the writer, and make room for what is new among the items."""
        core = self._core
        drop_quarantined(core)
        while core.touches.is_due() and write_touches(core):
            pass
        self._recycler.shrink_to_budget()
        if core.space.fits([item.size_bytes for item in items]):
            return
        for _ in range(4 * len(core.index.segments.rows) + 64):
            if core.space.fits(self._new_sizes(items)) or not self._recycler.make_room():
                break

    def _new_sizes(self, items: list[Item]) -> list[int]:
        """The padded sizes of the items that are not duplicates of what is there, or of an item before them."""
        core, now = self._core, self._core.now()
        best: dict[bytes, int] = {}
        for item, value in zip(items, core.index.read([item.id_bytes for item in items]), strict=True):
            slot = unpack_slot(item.id_bytes, value) if value is not None else None
            if slot is not None and core.is_live(core.last_used(item.id_bytes, slot), now):
                best.setdefault(item.id_bytes, slot.provenance)
        sizes: list[int] = []
        for item in items:
            is_new = item.record.provenance > best.get(item.id_bytes, 0)
            if is_new and item.size_bytes <= core.space.segment_bytes:
                best[item.id_bytes] = item.record.provenance
                sizes.append(item.size_bytes)
        return sizes

    def _commit(self, items: Sequence[Item], durable: bool, join: Callable[[], Sequence[Item]]) -> list[WriteResult]:
        core = self._core
        is_closed_to_new = self._when_full is WhenFull.REFUSE and core.space.is_over_budget()
        with Batch(core.index) as batch:
            commit = _Commit(batch, durable, is_closed_to_new)
            try:
                self._write_all(commit, items, join)
            except BaseException:  # Whatever it was, the memory of what is being written is used again.
                self._spool.abandon()
                raise
            outcomes = {result.outcome for result in commit.results}
            durable = durable or WriteOutcome.REPLACED in outcomes
            if durable:
                core.files.sync()
            if outcomes & _WRITTEN or batch.dropped or batch.is_updated:
                batch.commit()
        if durable:
            core.index.sync()
        if outcomes & _WRITTEN:
            core.medium.written()
        self._tell(commit)
        return commit.results

    def _write_all(self, commit: _Commit, items: Sequence[Item], join: Callable[[], Sequence[Item]]) -> None:
        """Judge and place items, and those that come while the medium is busy; returns when all are written."""
        while items:
            now = self._core.now()
            commit.items += items
            commit.results += [self._write_one(commit, item, now) for item in items]
            self._spool.begin()
            while not (items := join()) and self._spool.wait():
                pass

    def _tell(self, commit: _Commit) -> None:
        core, pairs = self._core, list(zip(commit.items, commit.results, strict=True))
        core.report(commit.batch.dropped)
        duplicates = [item.id_bytes for item, result in pairs if result.outcome is WriteOutcome.DUPLICATE]
        core.touches.add(duplicates, core.now())
        written = [(item, result) for item, result in pairs if result.outcome in _WRITTEN]
        core.ghosts.forget(result.id for _, result in written)
        core.memory.put(commit.payloads)
        for _ in range(len(pairs) - len(duplicates) - len(written)):
            core.fault("full")
        if written:
            core.observer.moved(core.name, "write", sum(item.length_bytes for item, _ in written))

    def _write_one(self, commit: _Commit, item: Item, now: float) -> WriteResult:
        """Judge one record against what is there, and name it at a new place unless that is as good.

        Its image is on its way there then.
        """
        batch, durable = commit.batch, commit.durable
        core, record = self._core, item.record
        old = self._live_or_dropped(batch, item.id_bytes, now)
        if old is not None and durable and old.flags & RELAXED:
            old = self._settled_or_dropped(batch, item.id_bytes, old)
        if old is not None and record.provenance <= old.provenance:
            return WriteResult(record.id, WriteOutcome.DUPLICATE, old.generation)
        place = None if commit.is_closed_to_new else core.space.place(batch, item.size_bytes)
        if place is None:
            return WriteResult(record.id, WriteOutcome.FULL, old.generation if old is not None else 0)
        if old is not None:
            batch.drop(item.id_bytes, old, "replaced")
        generation = core.index.next_generation()
        slot = Slot(
            generation,
            record.checksum,
            now,
            now,
            place.segment,
            place.page,
            item.length_bytes,
            batch.owner_number(record.owner),
            int(record.provenance),
            0 if durable else RELAXED,
            record.label,
            record.supersedes,
        )
        batch.put(item.id_bytes, slot)
        image = self._image_of(item, slot)
        commit.payloads.append((generation, payload_in(image, item.length_bytes)))
        self._spool.add(place.segment, place.offset, image)
        return WriteResult(record.id, WriteOutcome.REPLACED if old is not None else WriteOutcome.STORED, generation)

    def _settled_or_dropped(self, batch: Batch, id_bytes: bytes, old: Slot) -> Slot | None:
        """A record that was written without a sync, and is to be durable with this commit.

        The machine may have crashed since, so it is read; what is not there whole is dropped.
        """
        core = self._core
        if core.loader.read(Row(id_bytes, old).entry(), (old.segment, old.page)) is None:
            core.fault("corrupt")
            batch.drop(id_bytes, old, "corrupt")
            return None
        core.files.unsynced.add(old.segment)
        settled = old._replace(flags=old.flags & ~RELAXED)
        batch.update(id_bytes, settled)
        return settled

    def _image_of(self, item: Item, slot: Slot) -> memoryview:
        """The record as it will stand on the medium: around its payload if that is in an image, else a copy."""
        payload = item.record.payload
        image = image_around(payload)
        if image is None:
            image = self._core.images.take(item.length_bytes)
            payload_in(image, item.length_bytes)[:] = memoryview(payload).cast("B")
        image[:HEADER_BYTES] = RecordHeader(
            item.id_bytes, slot.generation, slot.provenance, slot.length_bytes, slot.created_at, slot.checksum
        ).pack()
        end = HEADER_BYTES + item.length_bytes
        image[end:] = _ZEROS[: item.size_bytes - end]
        return image

    def _live_or_dropped(self, batch: Batch, id_bytes: bytes, now: float) -> Slot | None:
        """The live record of that id; one that expired, is damaged or unknown of provenance is dropped."""
        core, old = self._core, batch.get(id_bytes)
        if old is None:
            return None
        used_at = core.last_used(id_bytes, old)
        if not core.is_live(used_at, now):
            batch.drop(id_bytes, old._replace(last_used_at=used_at), "expired")
            return None
        if core.quarantine.has(id_bytes, note_of(old)):
            batch.drop(id_bytes, old, "corrupt")
            return None
        return old


def _all(items: Sequence[Item], outcome: WriteOutcome) -> list[WriteResult]:
    return [WriteResult(item.record.id, outcome) for item in items]
