"""Reading: what the index names, and verified payloads from the segments."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import lmdb
import xxhash

from kvshelf_client.words import MissReason, Provenance
from storage.base import Entry, Loaded, Miss, RecordId
from storage.ssd.core import Core, id_bytes_of, pack_id
from storage.ssd.format import HEADER_BYTES, PAGE_BYTES, RecordHeader
from storage.ssd.rows import SLOT, SLOT_BYTES, SUM_BYTES
from storage.ssd.segments import SegmentFiles

_PROVENANCES = {int(one): one for one in Provenance}
_TRIES = 64

Spot = tuple[int, int]
"""Segment and page of a record; segment 0 is none."""

_NOWHERE: Spot = (0, 0)


class Found(NamedTuple):
    """What a lookup found: an entry or a miss for each id, and where the entries' records are."""

    entries: list[Entry | Miss]
    spots: list[Spot]


def read_record(files: SegmentFiles, entry: Entry, spot: Spot) -> bytes | None:
    """Header and payload of a record; None when what is there is not that record, whole and unharmed.

    Raises:
        OSError: the segment cannot be read.
    """
    data = files.read(spot[0], spot[1] * PAGE_BYTES, HEADER_BYTES + entry.length_bytes)
    expected = RecordHeader(
        pack_id(entry.id),
        entry.generation,
        entry.provenance,
        entry.length_bytes,
        entry.created_at,
        entry.checksum,
    )
    if len(data) != HEADER_BYTES + entry.length_bytes or RecordHeader.unpack(data[:HEADER_BYTES]) != expected:
        return None
    return data if xxhash.xxh3_64_intdigest(memoryview(data)[HEADER_BYTES:]) == entry.checksum else None


class Reader:
    """Looks records up and reads them. Thread-safe; never waits for the writer.

    Args:
        core: the tier's state.
        settle: takes damaged records out of the index if the writer is idle, else leaves it to the writer.
    """

    def __init__(self, core: Core, settle: Callable[[], None]) -> None:
        self._core = core
        self._settle = settle

    def find(self, ids: Sequence[RecordId]) -> Found:
        """What the index names of ``ids`` and has not expired, in order."""
        core, keys = self._core, id_bytes_of(ids)
        for _ in range(_TRIES):
            flushes = core.touches.flushes
            try:
                values = core.index.read(keys)
            except (lmdb.Error, OSError):
                core.fault("io")
                break
            found = self._judge(ids, keys, values)
            if flushes == core.touches.flushes:
                return found
        return Found([Miss(record_id, MissReason.TIER_DOWN) for record_id in ids], [_NOWHERE] * len(ids))

    def find_pinned(self, ids: Sequence[RecordId]) -> Found:
        """As :meth:`find`, with the segment of each record found pinned once."""
        pins = self._core.pins
        for _ in range(_TRIES):
            claims = pins.claims
            found = self.find(ids)
            if pins.pin((segment for segment, _ in found.spots if segment), claims):
                return found
        self._core.fault("timeout")
        return Found([Miss(record_id, MissReason.TIER_DOWN) for record_id in ids], [_NOWHERE] * len(ids))

    def load(self, entries: Sequence[Entry | Miss], spots: Sequence[Spot]) -> list[Loaded | Miss]:
        """The verified payloads of records whose segments are pinned. Raises ValueError when the tier is closed."""
        with self._core.gate:
            return [
                self._load(entry, spot) if isinstance(entry, Entry) else entry
                for entry, spot in zip(entries, spots, strict=True)
            ]

    def _load(self, entry: Entry, spot: Spot) -> Loaded | Miss:
        core = self._core
        try:
            data = read_record(core.files, entry, spot)
        except OSError:
            core.fault("io")
            return Miss(entry.id, MissReason.TIER_DOWN)
        core.is_up = True
        if data is None:
            return self._condemn(entry.id, (entry.generation, *spot))
        core.observer.moved(core.name, "read", entry.length_bytes)
        return Loaded(entry, memoryview(data)[HEADER_BYTES:])

    def _judge(self, ids: Sequence[RecordId], keys: list[bytes], values: list[bytes | None]) -> Found:
        """Entries and spots of rows. One loop with everything local: a prompt of a million tokens has 7,813 blocks."""
        core, provenances, digest, unpack = self._core, _PROVENANCES, xxhash.xxh3_64_intdigest, SLOT.unpack_from
        touched, quarantine = core.touches.times, core.quarantine
        dead_at = core.now() - core.ttl_seconds
        entries: list[Entry | Miss] = []
        spots: list[Spot] = []
        for record_id, key, value in zip(ids, keys, values, strict=True):
            spots.append(_NOWHERE)
            if value is None:
                entries.append(Miss(record_id, core.ghosts.reason(record_id)))
                continue
            if len(value) < SLOT_BYTES:
                entries.append(self._condemn(record_id, None))
                continue
            fields = unpack(value)
            check, generation, checksum, created_at, used_at, segment, page, length, _, provenance, _ = fields
            if digest(value[SUM_BYTES:]) != check or provenance not in provenances:
                entries.append(self._condemn(record_id, None))
                continue
            if touched:
                used_at = max(used_at, touched.get(key, 0.0))
            if used_at <= dead_at:
                entries.append(Miss(record_id, MissReason.EXPIRED))
                continue
            if quarantine and quarantine.has(key, (generation, segment, page)):
                entries.append(Miss(record_id, MissReason.CORRUPT))
                continue
            kind, supersedes = provenances[provenance], value[SLOT_BYTES:] or None
            entries.append(Entry(record_id, kind, length, checksum, generation, created_at, used_at, supersedes))
            spots[-1] = (segment, page)
        return Found(entries, spots)

    def _condemn(self, record_id: RecordId, note: tuple[int, int, int] | None) -> Miss:
        if self._core.quarantine.add(pack_id(record_id), note):
            self._core.fault("corrupt")
            self._settle()
        return Miss(record_id, MissReason.CORRUPT)
