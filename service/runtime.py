"""How the process is set up for moving bulk: see docs/decisions/0019-memory-of-the-process.md."""

import ctypes
import gc

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8

KEPT_BUFFER_BYTES = 2 << 20
"""Buffers up to this size come from memory that is used again; larger ones are the system's own each time."""
KEPT_BYTES = 16 << 20
"""What the allocator may keep although nobody uses it."""
ARENAS = 2
"""Parts of the heap: every thread that had one of its own would keep what it once needed."""

_YOUNG_OBJECTS = 20_000


def tune() -> None:
    """Let the allocator keep large buffers, and the collector look less often. For the whole process, once."""
    _keep_buffers()
    # What lives by now lives as long as the process; what moves bulk makes no cycles.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)


def _keep_buffers() -> None:
    """Each fresh large buffer costs a page fault every 4 KiB. Another C library than glibc keeps its own ways."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for parameter, value in (
        (_M_MMAP_THRESHOLD, KEPT_BUFFER_BYTES),
        (_M_TRIM_THRESHOLD, KEPT_BYTES),
        (_M_TOP_PAD, 1 << 20),
        (_M_ARENA_MAX, ARENAS),
    ):
        mallopt(parameter, value)
