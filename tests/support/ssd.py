"""Helpers of the tests that look at the SSD tier's own promises."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from storage.base import RecordId, WriteOutcome
from storage.clock import ManualClock
from storage.ssd import SsdTier, WhenFull
from storage.ssd.format import PAGE_BYTES
from storage.ssd.kernel_io import KernelIO, Request
from storage.ssd.segments import SegmentFiles
from tests.support.observers import RecordingObserver
from tests.support.records import fetch, make_id, make_records

HOUR_SECONDS = 3600.0
TTL_SECONDS = 72 * HOUR_SECONDS
BLOCK_BYTES = 113_920
"""128 tokens of 890 bytes."""


class SsdShelf:
    """One data directory, opened as often as a test likes.

    Args:
        directory: the data directory; made by the first :meth:`open`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.observer = RecordingObserver()
        self._tiers: list[SsdTier] = []

    def open(
        self,
        budget_bytes: int = 32 << 20,
        *,
        when_full: WhenFull = WhenFull.EVICT,
        max_record_bytes: int = 0,
        memory_bytes: int = 0,
        make_files: Callable[[Path], SegmentFiles] = SegmentFiles,
    ) -> SsdTier:
        """Open the directory with the clock and observer of this object and a TTL of 72 hours."""
        tier = SsdTier(
            self.directory,
            clock=self.clock,
            ttl_seconds=TTL_SECONDS,
            budget_bytes=budget_bytes,
            observer=self.observer,
            when_full=when_full,
            max_record_bytes=max_record_bytes,
            memory_bytes=memory_bytes,
            make_files=make_files,
        )
        self._tiers.append(tier)
        return tier

    def finish(self) -> None:
        """Check and close what is still open."""
        for tier in self._tiers:
            if tier.is_up():
                tier.check_integrity()
            tier.close()

    def segments(self) -> list[Path]:
        """The segment files, in the order of their numbers."""
        return sorted((self.directory / "segments").glob("*.seg"))

    def disk_bytes(self) -> int:
        """What the directory takes of the disk, as ``du`` counts it."""
        return sum(path.stat().st_blocks * 512 for path in self.directory.rglob("*"))


class Device:
    """Makes the faulty files of one tier, and keeps hold of them."""

    def __init__(self) -> None:
        self.made: list[FaultySegmentFiles] = []

    def __call__(self, directory: Path) -> "FaultySegmentFiles":
        self.made.append(FaultySegmentFiles(directory))
        return self.made[-1]

    @property
    def files(self) -> "FaultySegmentFiles":
        """The files of the tier that was opened last."""
        return self.made[-1]


def fill(tier: SsdTier, start: int, count: int, *, size: int = BLOCK_BYTES, batch: int = 8) -> None:
    """Store records ``start`` to ``start + count``; every one must be stored."""
    for first in range(start, start + count, batch):
        records = make_records(range(first, min(first + batch, start + count)), size=size)
        assert {result.outcome for result in tier.write(records, durable=False)} == {WriteOutcome.STORED}


def alive(tier: SsdTier, numbers: range) -> list[int]:
    """The numbers of those records that can be read; their bytes must be right."""
    found = []
    for number in numbers:
        (result,) = fetch(tier, [make_id(number)])
        if isinstance(result, bytes):
            assert result == make_records([number], size=len(result))[0].payload, f"wrong bytes under {number}"
            found.append(number)
    return found


def ids(numbers: range) -> list[RecordId]:
    """The ids of made-up records."""
    return [make_id(number) for number in numbers]


class FaultySegmentFiles(SegmentFiles):
    """Segment files of a device that fails on demand: every operation in ``failing`` raises OSError."""

    failing: frozenset[str] = frozenset()
    bad_places: frozenset[tuple[int, int]] = frozenset()
    """Segment and offset of records that cannot be read."""
    code: int = errno.EIO

    @contextmanager
    def fails(self, *operations: str, code: int = errno.EIO) -> Iterator[None]:
        """Let operations (``create``, ``read``, ``write``, ``sync``) fail with an errno inside the block."""
        self.failing, self.code = frozenset(operations), code
        try:
            yield
        finally:
            self.failing = frozenset()

    def _fail(self, operation: str) -> None:
        if operation in self.failing:
            raise OSError(self.code, f"{operation} fails")

    def create(self, number: int, size_bytes: int) -> None:
        """See :meth:`SegmentFiles.create`."""
        self._fail("create")
        super().create(number, size_bytes)

    def read(self, number: int, offset: int, images: Sequence[memoryview]) -> None:
        """See :meth:`SegmentFiles.read`."""
        self._fail("read")
        end = offset + sum(image.nbytes for image in images)
        if any(segment == number and offset <= place < end for segment, place in self.bad_places):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().read(number, offset, images)

    def begin(self, kernel: KernelIO, requests: Sequence[Request]) -> int:
        """See :meth:`SegmentFiles.begin`. None: all go through :meth:`read` and :meth:`write`."""
        return 0

    def write(self, number: int, offset: int, images: Sequence[memoryview]) -> None:
        """See :meth:`SegmentFiles.write`. A failing one has written half of it."""
        if "write" in self.failing:
            halves = [image[: image.nbytes // 2 // PAGE_BYTES * PAGE_BYTES] for image in images]
            super().write(number, offset, halves[:1])
        self._fail("write")
        super().write(number, offset, images)

    def probe(self) -> None:
        """See :meth:`SegmentFiles.probe`."""
        self._fail("write")
        self._fail("sync")
        super().probe()

    def sync(self) -> None:
        """See :meth:`SegmentFiles.sync`."""
        self._fail("sync")
        super().sync()
