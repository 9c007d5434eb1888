"""Erasing for good: bytes of records that nobody names any more are written over in the segment files.

Zeros are written and synced, in place. What the drive keeps of a page it has written anew elsewhere is beyond this.
Everything here runs under the writer's lock.
"""

import mmap
from collections.abc import Iterable, Iterator

from storage.base import Wiped
from storage.ssd.batch import Batch, Dropped
from storage.ssd.core import Core
from storage.ssd.format import PAGE_BYTES, padded_bytes

_CHUNK_BYTES = 1 << 20
_ZEROS = bytes(_CHUNK_BYTES)


def overwrite(core: Core, dropped: Iterable[Dropped]) -> None:
    """Write over the records that just left the index, durably.

    Raises:
        OSError: it cannot be done; what is left is dead space, which :func:`wipe_segment` writes over.
    """
    for gone in dropped:
        start = gone.slot.page * PAGE_BYTES
        _zero(core, gone.slot.segment, start, start + padded_bytes(gone.slot.length_bytes))
    core.files.sync()


def wipe_segment(core: Core, cursor: int) -> Wiped:
    """Write over what no record has of the first segment behind ``cursor``, unless a reader holds the segment.

    What is zero already is only read.

    Raises:
        OSError: it cannot be done.
        lmdb.Error: the index cannot be read.
    """
    number = min((one for one in core.index.segments.rows if one > cursor), default=None)
    if number is None:
        return Wiped(0, None)
    if core.pins.is_pinned(number):
        return Wiped(0, number, is_held=True)
    written = sum(_zero(core, number, start, end) for start, end in _gaps(core, number))
    core.files.sync()
    return Wiped(written, number)


def _gaps(core: Core, number: int) -> Iterator[tuple[int, int]]:
    """The stretches of a segment that no record has."""
    with Batch(core.index) as batch:
        places = [(page, batch.get(id_bytes)) for page, id_bytes in batch.places(number)]
    at = 0
    for page, slot in places:
        start = page * PAGE_BYTES
        if at < start:
            yield at, start
        at = start + (padded_bytes(slot.length_bytes) if slot is not None else PAGE_BYTES)
    size = core.index.segments.rows[number].size_bytes
    if at < size:
        yield at, size


def _zero(core: Core, number: int, start: int, end: int) -> int:
    """Write zeros wherever there are others; returns how many bytes were written."""
    written = 0
    there, zeros = (memoryview(mmap.mmap(-1, _CHUNK_BYTES)) for _ in range(2))
    for offset in range(start, end, _CHUNK_BYTES):
        size = min(_CHUNK_BYTES, end - offset)
        core.files.read(number, offset, [there[:size]])
        if there[:size].tobytes() != _ZEROS[:size]:
            core.files.write(number, offset, [zeros[:size]])
            written += size
    return written
