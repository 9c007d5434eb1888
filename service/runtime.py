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


def tune_allocator() -> None:
    """Let the allocator keep large buffers. For the whole process, before there is a second thread.

    Each fresh large buffer costs a page fault every 4 KiB. A thread that is there already keeps a part of the heap of
    its own.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # Another C library than glibc keeps its own ways.
        return
    for parameter, value in (
        (_M_MMAP_THRESHOLD, KEPT_BUFFER_BYTES),
        (_M_TRIM_THRESHOLD, KEPT_BYTES),
        (_M_TOP_PAD, 1 << 20),
        (_M_ARENA_MAX, ARENAS),
    ):
        mallopt(parameter, value)


def tune_collector() -> None:
    """Let the collector look less often, and not at what is there by now: that lives as long as the process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)
