"""What a medium holds after the power is cut: everything that was synced, and any part of the rest."""

import random
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from storage.base import Tier
from storage.ssd import SsdTier
from storage.ssd.kernel_io import KernelIO, Request
from storage.ssd.segments import SegmentFiles
from tests.support.tiers import SsdFactory

_META_PAGES = 2
_LMDB_PAGE_BYTES = 4096
_TXNID_OFFSET = 144
"""Of a transaction's number in an LMDB meta page: page header 16, magic, version, address, map size, two databases
of 48 bytes, last page."""


class VolatileFiles(SegmentFiles):
    """Segment files that remember what was under every write since the last sync.

    ``step`` is called before each write and each sync: the moments at which the power may fail.
    """

    def __init__(self, directory: Path, step: Callable[["VolatileFiles"], None]) -> None:
        super().__init__(directory)
        self.step = step
        self.pending: list[tuple[int, int, bytes]] = []
        """Segment, offset and former bytes of the writes that were not synced, oldest first."""

    def begin(self, kernel: KernelIO, requests: Sequence[Request]) -> int:
        """See :meth:`SegmentFiles.begin`. No writes: they go through :meth:`write`."""
        return 0 if any(request.is_write for request in requests) else super().begin(kernel, requests)

    def write(self, number: int, offset: int, images: Sequence[memoryview]) -> None:
        """See :meth:`SegmentFiles.write`."""
        self.step(self)
        with self.path(number).open("rb") as file:
            file.seek(offset)
            self.pending.append((number, offset, file.read(sum(image.nbytes for image in images))))
        super().write(number, offset, images)

    def sync(self) -> None:
        """See :meth:`SegmentFiles.sync`."""
        self.step(self)
        super().sync()
        self.pending.clear()


def cut_power(source: Path, target: Path, files: VolatileFiles, tier: SsdTier, rng: random.Random) -> None:
    """Copy a data directory as the medium may have it at this moment.

    Writes that were not synced are there, not there, or torn somewhere; the last commit of the index may be undone
    unless it was synced.
    """
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("lock.mdb"))
    for number, offset, former in reversed(files.pending):
        start, end = sorted(rng.choices(range(len(former) + 1), k=2))
        start, end = rng.choice([(0, len(former)), (start, end), (0, 0)])
        with (target / "segments" / files.path(number).name).open("r+b") as file:
            file.seek(offset + start)
            file.write(former[start:end])
    index = tier._core.index
    if not index.is_durable(index.commits) and rng.random() < 0.5:
        undo_last_commit(target / "index" / "data.mdb")


def undo_last_commit(path: Path) -> None:
    """Make LMDB fall back to the commit before the last one, as if the last meta page had not reached the medium."""
    with path.open("r+b") as file:
        numbers = []
        for page in range(_META_PAGES):
            file.seek(page * _LMDB_PAGE_BYTES + _TXNID_OFFSET)
            numbers.append(struct.unpack("<Q", file.read(8))[0])
        assert abs(numbers[0] - numbers[1]) == 1, f"no meta pages of LMDB: {numbers}"
        newest = numbers.index(max(numbers))
        file.seek(newest * _LMDB_PAGE_BYTES + _TXNID_OFFSET)
        file.write(struct.pack("<Q", min(numbers) - 1))


class PowerCutFactory(SsdFactory):
    """SSD tiers whose process, and machine, may die at any step of a write; what the medium has then is opened."""

    def __init__(self, directory: Path, redis_url: Callable[[], str]) -> None:
        super().__init__(directory, redis_url)
        self.make_files = self._make_files
        self._files: VolatileFiles | None = None
        self._steps_left = 0
        self._cut: Callable[[], None] | None = None
        self._after: Path | None = None

    def before_crash(self, tier: Tier, random: random.Random) -> None:
        """See :meth:`TierFactory.before_crash`. The power goes at one of the next writes or syncs."""
        self._steps_left = random.randint(1, 3)
        self._after = None
        assert isinstance(tier, SsdTier)
        self._cut = lambda: self._cut_power(tier, random)

    def recover(self, tier: Tier) -> Tier:
        """See :meth:`TierFactory.recover`. Where the power did not go during the write, it goes now."""
        if self._cut is not None:
            self._cut()
        assert self._after is not None
        _, ttl_seconds, budget_bytes = self._settings[tier]
        tier.close()
        return self._open(self._after, ttl_seconds, budget_bytes)

    def _make_files(self, directory: Path) -> SegmentFiles:
        self._files = VolatileFiles(directory, self._step)
        return self._files

    def _step(self, files: VolatileFiles) -> None:
        self._steps_left -= 1
        if self._cut is not None and not self._steps_left:
            self._cut()

    def _cut_power(self, tier: SsdTier, rng: random.Random) -> None:
        self._cut = None
        assert self._files is not None
        self._after = self.directory / f"after{len(self._settings)}"
        cut_power(self._settings[tier][0], self._after, self._files, tier, rng)
