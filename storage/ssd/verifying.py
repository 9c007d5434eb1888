"""Verifying a data directory that nobody has open: everything is read, nothing is written, LMDB is not let at it."""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from storage.base import Entry
from storage.ssd.format import HEADER_BYTES, PAGE_BYTES, check_format
from storage.ssd.loading import Spot, verified
from storage.ssd.pages import IndexFile, UnreadableIndexError
from storage.ssd.reading import entry_in
from storage.ssd.rows import RECORDS, SEGMENTS, unpack_number, unpack_segment
from storage.ssd.salvage import DATA_FILE, inspect_index

FINDINGS_KEPT = 1000
_TOLD_DIGITS = 12


@dataclass(slots=True)
class Report:
    """What was found. ``counts`` has every finding by kind, ``findings`` the first of them in words."""

    records: int = 0
    payload_bytes: int = 0
    segments: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found."""
        return not self.counts

    def found(self, kind: str, text: str) -> None:
        """Note something that is wrong."""
        self.counts[kind] += 1
        if len(self.findings) < FINDINGS_KEPT:
            self.findings.append(text)


def verify(directory: Path, report: Report, *, payloads: bool, progress: Callable[[int, int], None]) -> None:
    """Look at format, index and segments of an SSD tier's directory, and at every record unless not ``payloads``.

    ``progress`` is told how many payload bytes were read, of how many. The caller sees to it that nobody writes.

    Raises:
        UnusableDirectoryError: it is no directory of this format.
        OSError: a file cannot be opened.
    """
    check_format(directory)
    index = directory / "index" / DATA_FILE
    records = _look_at_index(index, report) if index.exists() else []
    sizes = _look_at_segments(directory / "segments", index, report)
    report.records += len(records)
    report.payload_bytes += sum(entry.length_bytes for entry, _ in records)
    if payloads:
        _look_at_records(directory / "segments", records, sizes, report, progress)


def _look_at_index(path: Path, report: Report) -> list[tuple[Entry, Spot]]:
    """Every record that has a sound row, in the order of places."""
    try:
        found = inspect_index(path)
        for damage in found.damaged:
            report.found("index", f"index: {damage}")
        report.counts["index"] += max(0, found.damages - len(found.damaged))
        for id_bytes in found.lost:
            report.found("row", f"record {id_bytes.hex()[:_TOLD_DIGITS]}: its index entry is lost")
        if found.bad_rows and not found.lost:
            report.found("row", "index: places and records do not agree")
        with IndexFile(path) as file:
            rows = [entry_in(id_bytes, value) for id_bytes, value in file.tables().get(RECORDS, ())]
    except UnreadableIndexError as error:
        report.found("index", f"index: {error}")
        return []
    report.counts["row"] += max(0, sum(row is None for row in rows) - len(found.lost))
    report.counts += Counter()  # what is 0 goes
    return sorted((row for row in rows if row is not None), key=lambda row: row[1])


def _look_at_segments(directory: Path, index: Path, report: Report) -> dict[int, int]:
    """The sizes of the segment files that are there; those that are missing or have another size are found."""
    sizes = {int(path.stem): path.stat().st_size for path in directory.glob("[0-9]*.seg") if path.stem.isdecimal()}
    report.segments += len(sizes)
    if not index.exists():
        return sizes
    try:
        with IndexFile(index) as file:
            rows = [(key, unpack_segment(value)) for key, value in file.tables().get(SEGMENTS, ())]
    except UnreadableIndexError:
        return sizes
    for key, row in rows:
        number = unpack_number(key) if len(key) == 4 else 0
        if row is None:
            report.found("row", f"segment {number}: its index entry is damaged")
        elif sizes.get(number) != row.size_bytes:
            report.found("segment", f"segment {number}: {sizes.get(number, 0)} bytes of {row.size_bytes}")
    return sizes


def _look_at_records(
    directory: Path,
    records: list[tuple[Entry, Spot]],
    sizes: dict[int, int],
    report: Report,
    progress: Callable[[int, int], None],
) -> None:
    total, done, opened, file = sum(entry.length_bytes for entry, _ in records), 0, 0, -1
    try:
        for entry, (segment, page) in records:
            if segment != opened:
                if file >= 0:
                    os.close(file)
                file = os.open(directory / f"{segment:06}.seg", os.O_RDONLY) if segment in sizes else -1
                opened = segment
            where = f"record {entry.id.key.hex()[:_TOLD_DIGITS]} at {segment}:{page}"
            why = _fault_of(file, entry, page) if file >= 0 else "its segment is missing"
            if why:
                report.found("record", f"{where}: {why}")
            done += entry.length_bytes
            progress(done, total)
    finally:
        if file >= 0:
            os.close(file)


def _fault_of(file: int, entry: Entry, page: int) -> str:
    """What is wrong with a record; empty when nothing is."""
    try:
        data = memoryview(os.pread(file, HEADER_BYTES + entry.length_bytes, page * PAGE_BYTES))
    except OSError as error:
        return error.strerror or "it cannot be read"
    return "its bytes are not those that were written" if verified(entry, data) is None else ""
