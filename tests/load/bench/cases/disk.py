"""References: the disk under the data directory, read and written past the page cache."""

import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.load.bench.base import Case, Figures
from tests.load.bench.measure import rate_gb_s
from tests.load.bench.sizes import MIB
from tests.load.bench.stage import Stage

_READERS = 8
_READ_BYTES = 28 * 4096
"""What a block takes in a segment."""
_SEQUENTIAL_BYTES = MIB
_SYNC_BYTES = 8 * MIB
"""About what 64 blocks take: one commit."""


def aligned(size_bytes: int) -> mmap.mmap:
    """Memory at the start of a page, as O_DIRECT needs it."""
    buffer = mmap.mmap(-1, size_bytes)
    buffer[::4096] = b"\1" * -(-size_bytes // 4096)
    return buffer


class _Disk(Case):
    """A file of its own, written once, and threads that read or write it at the same time."""

    threads = _READERS
    piece_bytes = _READ_BYTES

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        path = stage.directory / f"{self.name}.bin"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        stage.closing.callback(os.close, self._descriptor)
        self._pool = stage.closing.enter_context(ThreadPoolExecutor(self.threads))
        self._buffers = [aligned(max(self.piece_bytes, MIB)) for _ in range(self.threads)]
        self._pieces = stage.sizes.disk_file_bytes // self.piece_bytes
        for start in range(0, stage.sizes.disk_file_bytes, MIB):
            os.pwrite(self._descriptor, self._buffers[0], start)
        os.fsync(self._descriptor)
        self._turn = 0

    def _in_turns(self, pieces: list[int]) -> int:
        """Read or write the pieces of these numbers, each thread every so-manieth."""
        shares = [pieces[number :: self.threads] for number in range(self.threads)]
        return sum(self._pool.map(self._work, range(self.threads), shares))

    def _work(self, thread: int, pieces: list[int]) -> int:
        view = memoryview(self._buffers[thread])[: self.piece_bytes]
        return sum(os.preadv(self._descriptor, [view], piece * self.piece_bytes) for piece in pieces)


class DiskRandom(_Disk):
    """Pieces of a block's size in random order, eight readers."""

    name = "disk_random"

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        return {"disk_random_gb_s": rate_gb_s(self._some, self.stage.sizes.seconds)}

    def _some(self) -> int:
        count = min(self.stage.sizes.blocks, self._pieces)
        return self._in_turns(self.stage.random.sample(range(self._pieces), count))


class DiskSequential(_Disk):
    """1 MiB after the other, eight readers side by side."""

    name = "disk_sequential"
    piece_bytes = _SEQUENTIAL_BYTES

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        return {"disk_sequential_gb_s": rate_gb_s(self._next, self.stage.sizes.seconds)}

    def _next(self) -> int:
        pieces = [(self._turn + number) % self._pieces for number in range(min(64, self._pieces))]
        self._turn += len(pieces)
        return self._in_turns(pieces)


class DiskWrite(_Disk):
    """1 MiB after the other, one writer, synced every 8 MiB.

    ``disk_write`` goes into space that is allocated and was never written, as that of the new segments that the stores
    fill: the file system has to note that it is, now, and a virtual disk may have to find room. ``disk_rewrite`` goes
    over what was written, as into a segment that is used again.
    """

    name = "disk_write"
    threads = 1
    piece_bytes = _SEQUENTIAL_BYTES

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        seconds = self.stage.sizes.seconds
        rewritten = rate_gb_s(partial(self._next, self._descriptor), seconds)
        path = self.stage.directory / "fresh.bin"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        try:
            os.posix_fallocate(descriptor, 0, self._pieces * self.piece_bytes)
            os.fsync(descriptor)
            self._turn = 0
            written = rate_gb_s(partial(self._next, descriptor), seconds)
        finally:
            os.close(descriptor)
            path.unlink()
        return {"disk_write_gb_s": written, "disk_rewrite_gb_s": rewritten}

    def _next(self, descriptor: int) -> int:
        """Write some pieces and sync them; returns how many bytes."""
        count = min(_SYNC_BYTES // self.piece_bytes, self._pieces)
        pieces = [(self._turn + number) % self._pieces for number in range(count)]
        self._turn += count
        view = memoryview(self._buffers[0])[: self.piece_bytes]
        written = sum(os.pwritev(descriptor, [view], piece * self.piece_bytes) for piece in pieces)
        os.fdatasync(descriptor)
        return written
