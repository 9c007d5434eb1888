"""Retire the snapshot that a used one supersedes."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvshelf_client.words import Provenance
from service.shelf.parts import Parts
from service.shelf.survey import worst_provenance
from storage.base import Entry, Hold, RecordId


class Superseded(NamedTuple):
    """A snapshot that goes, unless it is better than ``provenance``."""

    id: RecordId
    provenance: Provenance


def superseded_by(entries: Iterable[Entry], hold: Hold) -> list[Superseded]:
    """What the use of these shards of a held snapshot supersedes.

    A snapshot is no better than its worst shard, whichever shards are used here.
    """
    provenance = worst_provenance(hold.entries)
    return [
        Superseded(RecordId(entry.supersedes, entry.id.shard), provenance)
        for entry in entries
        if entry.supersedes is not None and entry.supersedes != entry.id.key
    ]


def retire(parts: Parts, superseded: Sequence[Superseded]) -> None:
    """Drop what is no better. A replayed snapshot may become exact at any time, except in our turn."""
    for earlier, provenance in superseded:
        with parts.turns.of([] if provenance is Provenance.EXACT else [earlier.key]):
            (found,) = parts.snapshots.lookup([earlier])
            if isinstance(found, Entry) and found.provenance <= provenance:
                parts.snapshots.delete([earlier], cause="superseded")
                parts.fates.note("snapshot", [earlier], "superseded")
