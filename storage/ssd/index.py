"""The index: an LMDB environment that names every record, and the rows of segments and owners it adds up to.

A commit writes and syncs its data pages and then writes its meta page without a sync (``MDB_NOMETASYNC``). The sync of
the next commit covers that page too, so a crash of the machine may undo the last commit, never more and never half of
one, and after :meth:`Index.sync` not even that. A killed process loses none.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import lmdb

from storage.clock import Clock
from storage.ssd.format import sync_directory, sync_file
from storage.ssd.rows import (
    META,
    META_KEY,
    OWNERS,
    PLACES,
    RECORDS,
    REPAIR_KEY,
    SEGMENTS,
    Meta,
    OwnerRow,
    SegmentRow,
    pack_meta,
    unpack_meta,
    unpack_number,
    unpack_owner,
    unpack_segment,
)
from storage.ssd.salvage import DATA_FILE
from storage.ssd.shelf_clock import ShelfClock
from storage.ssd.table import OwnerTable, SegmentTable

_MAX_READERS = 1024
_EPOCH_SHIFT = 32
_COMPACT_FOLDER = "compact"
_META_PAGES = 2


def rows_of(cursor: lmdb.Cursor) -> Iterator[tuple[bytes, bytes]]:
    """Every key and value of a database, in the order of the keys."""
    for key, value in cursor:
        yield bytes(key), bytes(value)


class Index:
    """The open environment and what is kept of it in memory. Reads from any thread; batches from one at a time.

    Args:
        directory: where LMDB keeps its files; made when it is not there.
        map_bytes: the address space LMDB reserves.
        clock: what :attr:`clock` follows.

    Raises:
        lmdb.Error: the environment cannot be opened.
    """

    def __init__(self, directory: Path, map_bytes: int, clock: Clock) -> None:
        self._directory, self._map_bytes = directory, map_bytes
        shutil.rmtree(directory / _COMPACT_FOLDER, ignore_errors=True)
        self._open()
        self.segments = SegmentTable()
        self.owners = OwnerTable()
        self.is_damaged = False
        """A row was found that cannot be believed: the accounts must be rebuilt from the records."""
        self.commits = 0
        """How many commits there were since the environment was opened."""
        self._durable_commits = 0
        self.epoch = self.sequence = 0
        self._counter = 0
        try:
            latest_at = self._load()
        except BaseException:  # whatever it was, another attempt must find the environment closed
            self.env.close()
            raise
        self.clock = ShelfClock(clock, latest_at)

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The record rows of keys, in order; None where there is none."""
        with self.env.begin(db=self.dbs[RECORDS]) as txn:
            get = txn.get
            return [get(key) for key in keys]

    def rows_from(self, prefix: bytes, after: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Up to ``limit`` record rows whose keys start with ``prefix`` and come behind ``after``, in order."""
        found: list[tuple[bytes, bytes]] = []
        with self.env.begin(db=self.dbs[RECORDS]) as txn:
            cursor = txn.cursor()
            is_there = cursor.set_range(max(prefix, after + bytes(1) if after else b""))
            while is_there and len(found) < limit:
                key, value = cursor.item()
                if not bytes(key).startswith(prefix):
                    break
                found.append((bytes(key), bytes(value)))
                is_there = cursor.next()
        return found

    def next_generation(self) -> int:
        """A generation that no record of this directory ever had."""
        self._counter += 1
        return (self.epoch << _EPOCH_SHIFT) + self._counter

    def next_sequence(self) -> int:
        """The next number in the order in which segments are opened for writing."""
        self.sequence += 1
        return self.sequence

    def pack_meta(self) -> bytes:
        """The row of the tier's own counters as they are now."""
        return pack_meta(Meta(self.epoch, self.sequence, self.clock.now()))

    def committed(self) -> None:
        """Take note of a commit. All before it are durable by now."""
        self._durable_commits = self.commits
        self.commits += 1

    def is_durable(self, commit: int) -> bool:
        """Whether that commit would survive a crash of the machine."""
        return commit <= self._durable_commits

    def sync(self) -> None:
        """Make every commit durable."""
        if not self.is_durable(self.commits):
            self.env.sync(True)
            self._durable_commits = self.commits

    def file_bytes(self) -> int:
        """What the index takes on the medium. LMDB reuses the space of what is deleted but never gives it back."""
        return os.stat(self._directory / DATA_FILE).st_size

    def live_bytes(self) -> int:
        """What the index would take if it were written anew."""
        with self.env.begin() as txn:
            stats = [self.env.stat(), *(txn.stat(db) for db in self.dbs.values())]
        pages = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
        return (pages + _META_PAGES) * stats[0]["psize"]

    def compact(self) -> None:
        """Write the index anew, without the space of what was deleted. No transaction may be open, nor any other user.

        The new file takes the place of the old one in one step, so a crash leaves the one or the other.
        """
        folder = self._directory / _COMPACT_FOLDER
        folder.mkdir()
        self.env.copy(str(folder), compact=True)
        sync_file(folder / DATA_FILE)
        self.env.close()
        (folder / DATA_FILE).replace(self._directory / DATA_FILE)
        sync_directory(self._directory)
        shutil.rmtree(folder)
        self._open()
        self._durable_commits = self.commits

    def begin_epoch(self) -> None:
        """Start a new range of generations, durably, so that none is ever given twice."""
        self.epoch += 1
        self._counter = 0
        with self.env.begin(write=True) as txn:
            txn.put(META_KEY, self.pack_meta(), db=self.dbs[META])
        self.committed()
        self.sync()

    def close(self) -> None:
        """Sync and let go of the files. No transaction may be open. Raises lmdb.Error when the sync fails."""
        try:
            self.sync()
        finally:
            self.env.close()

    def _open(self) -> None:
        self.env = lmdb.open(
            str(self._directory),
            map_size=self._map_bytes,
            max_dbs=8,
            metasync=False,
            readahead=False,
            max_readers=_MAX_READERS,
        )
        try:
            self._match_length()
            self.env.reader_check()
            self.dbs = {name: self.env.open_db(name) for name in (RECORDS, PLACES, SEGMENTS, OWNERS, META)}
        except BaseException:  # whatever it was, another attempt must find the environment closed
            self.env.close()
            raise

    def _match_length(self) -> None:
        """Make the file as long as its meta page says: touching a mapped page behind its end is a SIGBUS.

        LMDB does not write pages that one transaction took and gave back, so a sound file may lack a few at its end.
        """
        need = (self.env.info()["last_pgno"] + 1) * self.env.stat()["psize"]
        if self.file_bytes() < need:
            os.truncate(self._directory / DATA_FILE, need)

    def _load(self) -> float:
        """Read the small tables; returns the latest time that was ever written."""
        segments: dict[int, SegmentRow] = {}
        owners: dict[int, OwnerRow] = {}
        with self.env.begin() as txn:
            for key, value in rows_of(txn.cursor(db=self.dbs[SEGMENTS])):
                segment = unpack_segment(value) if len(key) == 4 else None
                self.is_damaged |= segment is None
                if segment is not None:
                    segments[unpack_number(key)] = segment
            for key, value in rows_of(txn.cursor(db=self.dbs[OWNERS])):
                owner = unpack_owner(value) if len(key) == 4 else None
                self.is_damaged |= owner is None
                if owner is not None:
                    owners[unpack_number(key)] = owner
            row = txn.get(META_KEY, db=self.dbs[META])
            self.is_damaged |= txn.get(REPAIR_KEY, db=self.dbs[META]) is not None
            has_records = txn.stat(self.dbs[RECORDS])["entries"] > 0
        self.segments.load(segments)
        self.owners.load(owners)
        meta = unpack_meta(row) if row is not None else None
        if meta is None:
            self.is_damaged |= row is not None or has_records
            return 0.0
        self.epoch, self.sequence = meta.epoch, meta.sequence
        return meta.latest_at
