"""Opening a data directory: what a crash may have left behind is put right before anybody looks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from storage.base import TierObserver
from storage.clock import Clock
from storage.ghosts import Ghosts
from storage.ssd.batch import Dropped
from storage.ssd.core import Core
from storage.ssd.format import UnusableDirectoryError, open_format
from storage.ssd.gate import Gate
from storage.ssd.images import Images
from storage.ssd.index import Index
from storage.ssd.loading import Loader
from storage.ssd.medium import Medium
from storage.ssd.memory import PayloadMemory
from storage.ssd.pins import Pins
from storage.ssd.quarantine import Quarantine
from storage.ssd.repair import NOTHING
from storage.ssd.salvage import Inspection, mend_index
from storage.ssd.segments import SegmentFiles
from storage.ssd.sizing import map_bytes, segment_bytes
from storage.ssd.space import Space
from storage.ssd.touches import Touches
from storage.ssd.upkeep import repair

_TOUCH_LIMIT = 131_072
_TOUCH_FLUSH_AT = 32_768
_DAMAGE = (
    lmdb.InvalidError,
    lmdb.CorruptedError,
    lmdb.VersionMismatchError,
    lmdb.PageNotFoundError,
    lmdb.PageFullError,
    lmdb.CursorFullError,
    lmdb.PanicError,
    lmdb.BadTxnError,
    lmdb.BadValsizeError,
    lmdb.IncompatibleError,
    lmdb.NotFoundError,
)
"""What LMDB raises when it meets a page that it cannot have written."""


@contextmanager
def damage_in_words(directory: Path) -> Iterator[None]:
    """Say what LMDB's errors mean for a data directory: raises UnusableDirectoryError in their place."""
    try:
        yield
    except _DAMAGE as error:
        raise UnusableDirectoryError(f"{error}: move {directory} away, the cache refills") from None
    except lmdb.Error as error:
        raise UnusableDirectoryError(f"the index cannot be opened: {error}") from None


def open_core(
    directory: Path,
    *,
    name: str,
    clock: Clock,
    observer: TierObserver,
    ttl_seconds: float,
    budget_bytes: int,
    max_record_bytes: int,
    ghost_limit: int,
    memory_bytes: int,
    make_files: Callable[[Path], SegmentFiles],
) -> Core:
    """Open or make a data directory. Reads the index once, page by page, and no payload.

    Raises:
        ValueError: the budget is too small.
        UnusableDirectoryError: the directory has another on-disk format, or its index is damaged or cannot be opened.
        OSError: the directory cannot be read or written.
    """
    size = segment_bytes(budget_bytes, max_record_bytes)
    directory.mkdir(parents=True, exist_ok=True)
    open_format(directory)
    with damage_in_words(directory):
        found = mend_index(directory / "index", map_bytes(budget_bytes))
        index = Index(directory / "index", map_bytes(budget_bytes), clock)
    index.is_damaged |= not found.is_sound
    files = make_files(directory / "segments")
    images, memory = Images(), PayloadMemory(memory_bytes)
    pins, medium = Pins(), Medium(name, directory, clock, observer, spare_bytes=size)
    core = Core(
        name=name,
        ttl_seconds=ttl_seconds,
        index=index,
        files=files,
        pins=pins,
        space=Space(index, files, pins, clock, medium, budget_bytes=budget_bytes, segment_bytes=size),
        touches=Touches(_TOUCH_LIMIT, _TOUCH_FLUSH_AT),
        quarantine=Quarantine(),
        ghosts=Ghosts(ghost_limit),
        observer=observer,
        gate=Gate(name),
        medium=medium,
        images=images,
        memory=memory,
        loader=Loader(files, images, memory, lambda payload_bytes: observer.moved(name, "read", payload_bytes)),
    )
    try:
        with damage_in_words(directory):
            _tell(core, found)
            _reconcile(core)
            index.begin_epoch()
    except BaseException:  # whatever it was, another attempt must find the index closed
        core.loader.close()
        index.env.close()
        raise
    return core


def _tell(core: Core, found: Inspection) -> None:
    """Say what was wrong with the index, and remember which records are gone for it."""
    if not found.is_sound:
        core.medium.notice(
            "index_damaged",
            damages=found.damages,
            first="; ".join(found.damaged),
            bad_rows=found.bad_rows,
            kept=found.kept,
            lost=len(found.lost),
        )
        core.fault("corrupt")
        core.report(Dropped(id_bytes, NOTHING, "corrupt") for id_bytes in found.lost)


def _reconcile(core: Core) -> None:
    """Compare files and rows. A file without a row is left over from a crash; a row without a file lost its records."""
    index, sizes = core.index, core.files.sizes()
    if not index.is_damaged:
        for number in sizes.keys() - index.segments.rows.keys():
            core.files.remove(number)
            del sizes[number]
    lost = [number for number, row in index.segments.rows.items() if sizes.get(number) != row.size_bytes]
    if lost:
        core.medium.notice("segments_lost", segments=len(lost), first=min(lost))
    if index.is_damaged or lost:
        repair(core, sizes)
