"""Reading: what the index names, and verified payloads from the segments."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from math import inf
from typing import NamedTuple

import lmdb

from kvshelf_client.words import MissReason, Provenance
from storage.base import Entry, Loaded, Miss, Page, RecordId, TierAwayError
from storage.ssd.core import Core
from storage.ssd.ids import id_bytes_of, pack_id, record_id_of
from storage.ssd.loading import Place, Read, Spot
from storage.ssd.quarantine import Note
from storage.ssd.rows import unpack_slot

_PROVENANCES = {int(one): one for one in Provenance}
TOLD_DIGITS = 12
"""How much of a key is told to anybody, in hexadecimal digits."""

_TRIES = 64

_entry = partial(tuple.__new__, Entry)
"""An entry of its fields, in a third of the time: thousands are made for one prompt."""

_NOWHERE: Spot = (0, 0)

_Known = tuple[bytes | None, float, Entry | Miss, Spot]
"""A row, when it says that its record was last used, and what else it says. A miss has no end."""

_DECODED_LIMIT = 16_384
"""Rows kept decoded, some 600 bytes each: sessions ask for the same prefix again and again."""


class Found(NamedTuple):
    """What a lookup found: an entry or a miss for each id, and where the entries' records are."""

    entries: list[Entry | Miss]
    spots: list[Spot]


class Reader:
    """Looks records up and reads them. Thread-safe; never waits for the writer.

    Args:
        core: the tier's state.
        settle: takes damaged records out of the index if the writer is idle, else leaves it to the writer.
    """

    def __init__(self, core: Core, settle: Callable[[], None]) -> None:
        self._core = core
        self._settle = settle
        self._decoded: dict[bytes, _Known] = {}

    def find(self, ids: Sequence[RecordId]) -> Found:
        """What the index names of ``ids`` and has not expired, in order."""
        core, keys = self._core, id_bytes_of(ids)
        for _ in range(_TRIES):
            flushes = core.touches.flushes
            try:
                values = core.index.read(keys)
            except (lmdb.Error, OSError) as error:
                core.medium.read_failed(error)
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
            if pins.pin([segment for segment, _ in found.spots if segment], claims):
                return found
        self._core.fault("timeout")
        return Found([Miss(record_id, MissReason.TIER_DOWN) for record_id in ids], [_NOWHERE] * len(ids))

    def load(self, entries: Sequence[Entry | Miss], spots: Sequence[Spot]) -> list[Loaded | Miss]:
        """The verified payloads of records whose segments are pinned. Raises ValueError when the tier is closed."""
        core = self._core
        with core.gate:
            found = core.memory.get([entry.generation if type(entry) is Entry else 0 for entry in entries])
            loaded: list[Loaded | Miss] = [
                entry if payload is None else Loaded(entry, payload)  # type: ignore[misc, arg-type]
                for entry, payload in zip(entries, found, strict=True)
            ]
            lacking = [index for index, entry in enumerate(entries) if found[index] is None and type(entry) is Entry]
            if len(lacking) < len(loaded):
                core.observer.moved(core.name, "memory", sum(len(payload) for payload in found if payload is not None))
            if lacking:
                places = [Place(entries[index], spots[index]) for index in lacking]  # type: ignore[arg-type]
                for index, place, read in zip(lacking, places, core.loader.load(places), strict=True):
                    loaded[index] = self._loaded(*place, read)
            return loaded

    def reload(self, entries: Sequence[Entry | Miss], spots: Sequence[Spot]) -> list[Loaded | Miss]:
        """As :meth:`load`, from the medium, past the memory."""
        with self._core.gate:
            return [
                self._loaded(entry, spot, self._core.loader.attempt(entry, spot)) if isinstance(entry, Entry) else entry
                for entry, spot in zip(entries, spots, strict=True)
            ]

    def expect(self, entries: Sequence[Entry | Miss], spots: Sequence[Spot]) -> None:
        """Begin to read records that :meth:`load` will be asked for. Raises ValueError when the tier is closed."""
        core = self._core
        with core.gate:
            places = [
                Place(entry, spot)
                for entry, spot in zip(entries, spots, strict=True)
                if type(entry) is Entry and entry.generation not in core.memory
            ]
            if places:
                core.loader.expect(places)

    def scan(self, prefix: bytes, cursor: bytes, limit: int) -> Page:
        """The records behind ``cursor`` whose ids start with ``prefix``, in the order of their ids.

        Raises:
            TierAwayError: the index cannot be read.
        """
        core = self._core
        try:
            rows = core.index.rows_from(prefix, cursor, limit)
        except (lmdb.Error, OSError) as error:
            core.medium.read_failed(error)
            core.fault("io")
            raise TierAwayError(f"the {core.name} tier does not serve: {error}") from None
        entries = []
        for id_bytes, value in rows:
            known = entry_in(id_bytes, value)
            if known is None:
                self._condemn(record_id_of(id_bytes), None, "its index entry is damaged")
            else:
                entries.append(known[0])
        return Page(entries, rows[-1][0] if len(rows) == limit else None)

    def bring_into_cache(self, entries: Sequence[Entry | Miss], spots: Sequence[Spot]) -> None:
        """Have records brought to where a process that maps their segments finds them."""
        with self._core.gate:
            self._core.loader.bring_into_cache(entries, spots)

    def open_file(self, number: int) -> int:
        """A read-only descriptor of a pinned segment, for the caller to close. Raises OSError."""
        return self._core.files.open_to_read(number)

    def _loaded(self, entry: Entry, spot: Spot, read: Read) -> Loaded | Miss:
        core = self._core
        if isinstance(read, OSError):
            core.fault("io")
            if core.medium.read_failed(read):
                return self._condemn(entry.id, (entry.generation, *spot), f"{read.strerror}")
            return Miss(entry.id, MissReason.TIER_DOWN)
        if core.medium.bad_in_a_row:
            core.medium.read_well()
        if read is None and not self._is_named(entry):
            return Miss(entry.id, core.ghosts.reason(entry.id))  # erased since it was held
        if read is None:
            return self._condemn(entry.id, (entry.generation, *spot), "its bytes are not those that were written")
        return Loaded(entry, read)

    def _is_named(self, entry: Entry) -> bool:
        """Whether the index still has this very record, or cannot say."""
        id_bytes = pack_id(entry.id)
        (value,) = self._core.index.read([id_bytes])
        slot = unpack_slot(id_bytes, value) if value is not None else None
        return value is not None and (slot is None or slot.generation == entry.generation)

    def _judge(self, ids: Sequence[RecordId], keys: list[bytes], values: list[bytes | None]) -> Found:
        """Entries and spots of rows. A tight loop: a prompt of a million tokens has 7,813 blocks."""
        core, touched = self._core, self._core.touches.times
        dead_at = core.now() - core.ttl_seconds
        quarantine = core.quarantine if len(core.quarantine) else None
        touches = map(touched.get, keys, repeat(0.0)) if touched else repeat(0.0, len(keys))
        entries: list[Entry | Miss] = []
        spots: list[Spot] = []
        for key, known, touched_at in zip(keys, self._known(ids, keys, values), touches, strict=True):
            _, used_at, entry, spot = known
            if touched_at > used_at:
                used_at, entry = touched_at, _used(entry, touched_at)  # type: ignore[arg-type]
            if used_at <= dead_at:
                entry, spot = Miss(entry.id, MissReason.EXPIRED), _NOWHERE
            elif quarantine is not None and type(entry) is Entry and quarantine.has(key, (entry.generation, *spot)):
                entry, spot = Miss(entry.id, MissReason.CORRUPT), _NOWHERE
            entries.append(entry)
            spots.append(spot)
        return Found(entries, spots)

    def _known(self, ids: Sequence[RecordId], keys: list[bytes], values: list[bytes | None]) -> list[_Known]:
        """What the rows say. Most are as they were the last time, and are not decoded again."""
        decoded = self._decoded
        if len(decoded) > _DECODED_LIMIT:
            decoded = self._decoded = {}
        return [
            known if known is not None and known[0] == value else self._learn(decoded, record_id, key, value)
            for known, record_id, key, value in zip(map(decoded.get, keys), ids, keys, values, strict=True)
        ]

    def _learn(self, decoded: dict[bytes, _Known], record_id: RecordId, key: bytes, value: bytes | None) -> _Known:
        """What a row says that is not known yet, or that there is none."""
        if value is None:
            return None, inf, Miss(record_id, self._core.ghosts.reason(record_id)), _NOWHERE
        found = _decode(record_id, key, value)
        if found is None:
            return None, inf, self._condemn(record_id, None, "its index entry is damaged"), _NOWHERE
        entry, spot = found
        known = decoded[key] = value, entry.last_used_at, entry, spot
        return known

    def _condemn(self, record_id: RecordId, note: Note, why: str) -> Miss:
        if self._core.quarantine.add(pack_id(record_id), note):
            self._core.fault("corrupt")
            _, segment, page = note or (0, 0, 0)
            key = record_id.key.hex()[:TOLD_DIGITS]
            self._core.medium.notice(
                "record_corrupt", key=key, shard=record_id.shard, why=why, segment=segment, page=page
            )
            self._settle()
        return Miss(record_id, MissReason.CORRUPT)


def entry_in(id_bytes: bytes, value: bytes) -> tuple[Entry, Spot] | None:
    """What a row of the index says of its record; None when the row is damaged."""
    return _decode(record_id_of(id_bytes), id_bytes, value)


def _decode(record_id: RecordId, id_bytes: bytes, value: bytes) -> tuple[Entry, Spot] | None:
    """A record's row as a lookup answers it; None when the row is damaged."""
    slot = unpack_slot(id_bytes, value)
    if slot is None or slot.provenance not in _PROVENANCES:
        return None
    generation, checksum, created_at, used_at, segment, page, length_bytes, _, packed, _, label, supersedes = slot
    provenance = _PROVENANCES[packed]
    entry = _entry((record_id, provenance, length_bytes, checksum, generation, created_at, used_at, supersedes, label))
    return entry, (segment, page)


def _used(entry: Entry, used_at: float) -> Entry:
    """The entry of a record that was used since its row was written."""
    record_id, provenance, length_bytes, checksum, generation, created_at, _, supersedes, label = entry
    return _entry((record_id, provenance, length_bytes, checksum, generation, created_at, used_at, supersedes, label))
