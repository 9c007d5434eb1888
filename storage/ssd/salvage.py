"""Before LMDB touches an index file: check it page by page, and write what is whole into a new one if it is damaged."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import lmdb
import xxhash

from storage.ssd.format import sync_directory, sync_file
from storage.ssd.pages import IndexFile, Rows, UnreadableIndexError
from storage.ssd.rows import META, OWNERS, PLACES, RECORDS, REPAIR_KEY, SEGMENTS, place_in, unpack_slot

DATA_FILE = "data.mdb"

ROWS_CHECKED_AT_OPENING = 1 << 20
"""Of more records than that the rows are checked when they are asked for, and not one by one at opening."""

_FOLDER = "salvage"


@dataclass(slots=True)
class Inspection:
    """What was found in an index file. ``lost`` are ids that had a record whose row is gone; ``kept`` counts rows."""

    damages: int = 0
    damaged: list[str] = field(default_factory=list)
    bad_rows: int = 0
    kept: int = 0
    lost: list[bytes] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing was wrong."""
        return not self.damages and not self.bad_rows


def inspect_index(path: Path) -> Inspection:
    """Read an index file, page by page, without LMDB and without changing anything.

    Raises:
        UnreadableIndexError: nothing can be found in it.
        OSError: it cannot be opened.
    """
    with IndexFile(path) as file:
        tables = file.tables()
        found = _inspect_rows(tables.pop(RECORDS, None), tables.pop(PLACES, None))
        for rows in tables.values():
            for _ in rows:
                pass
        file.check_free_list()
        found.damages, found.damaged = file.damages, file.damaged
    if not found.is_sound:
        found.lost = list(_lost(path))
    return found


def _inspect_rows(records: Rows | None, places: Rows | None) -> Inspection:
    """Look at the rows of records, and whether the places are theirs."""
    found = Inspection()
    is_checked = records is not None and records.entries <= ROWS_CHECKED_AT_OPENING
    fold = 0  # of all places, once by the records and once by the table: equal tables fold to nothing
    for id_bytes, value in records or ():
        if is_checked:
            place = place_in(id_bytes, value)
            if place is None:
                found.bad_rows += 1
                continue
            fold ^= xxhash.xxh3_64_intdigest(place + id_bytes)
        found.kept += 1
    for place, id_bytes in places or ():
        fold ^= xxhash.xxh3_64_intdigest(place + id_bytes)
    if is_checked and fold and not found.bad_rows:
        found.bad_rows = 1
    return found


def mend_index(directory: Path, map_bytes: int) -> Inspection:
    """Make sure that LMDB can be let at an index: a damaged file is replaced by one with the rows that are whole.

    The new file is marked, so that the accounts are rebuilt from its records, now or by the next opening.

    Raises:
        lmdb.Error: the new file cannot be written.
        OSError: as well, or the old one cannot be read.
    """
    shutil.rmtree(directory / _FOLDER, ignore_errors=True)
    path = directory / DATA_FILE
    if not path.exists():
        return Inspection()
    try:
        found = inspect_index(path)
    except UnreadableIndexError as error:
        path.unlink()
        return Inspection(damages=1, damaged=[str(error)])
    if found.damages:
        _rewrite(path, directory / _FOLDER, map_bytes)
    return found


def _lost(path: Path) -> Iterator[bytes]:
    """The ids at places of which there is no record any more."""
    with IndexFile(path) as file:
        tables = file.tables()
        there = {id_bytes for id_bytes, value in tables.get(RECORDS, ()) if unpack_slot(id_bytes, value) is not None}
        for _, id_bytes in tables.get(PLACES, ()):
            if id_bytes not in there:
                yield id_bytes


def _rewrite(path: Path, folder: Path, map_bytes: int) -> None:
    folder.mkdir()
    with IndexFile(path) as file, closing(lmdb.open(str(folder), map_size=map_bytes, max_dbs=8)) as env:
        tables = file.tables()
        for name in (RECORDS, SEGMENTS, OWNERS, META):
            rows: Rows | None = tables.get(name)
            with env.begin(write=True, db=env.open_db(name)) as txn:
                for key, value in rows or ():
                    if name != RECORDS or unpack_slot(key, value) is not None:
                        txn.put(key, value)
        with env.begin(write=True, db=env.open_db(META)) as txn:
            txn.put(REPAIR_KEY, b"1")
    sync_file(folder / DATA_FILE)
    os.replace(folder / DATA_FILE, path)
    sync_directory(path.parent)
    shutil.rmtree(folder)
