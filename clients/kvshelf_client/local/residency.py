"""Which pages of a mapping are in memory: to read one that is not would wait for the disk, or die of its errors."""

import ctypes
import mmap
import os
from collections.abc import Callable

PAGE_BYTES = mmap.PAGESIZE


class _View(ctypes.Structure):
    """``Py_buffer``, as far as its address: the rest is there to be large enough."""

    _fields_ = [("address", ctypes.c_void_p), ("rest", ctypes.c_byte * 256)]


def address_of(mapping: mmap.mmap) -> int:
    """Where a mapping starts, for as long as it lasts."""
    view = _View()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapping), ctypes.byref(view), 0)
    address = view.address or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return address


def _mincore() -> Callable[[int, int, bytearray], None]:
    call = ctypes.CDLL(None, use_errno=True).mincore
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    call.restype = ctypes.c_int

    def mincore(address: int, length_bytes: int, pages: bytearray) -> None:
        if call(address, length_bytes, ctypes.addressof(ctypes.c_char.from_buffer(pages))):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    return mincore


_MINCORE = _mincore()


def pages_in_memory(address: int, offset_bytes: int, length_bytes: int) -> bytes:
    """One byte a page of a stretch of a mapping, 1 where it is in memory. The first page has ``offset_bytes``.

    Releases the interpreter while it looks. Raises OSError.
    """
    start = offset_bytes // PAGE_BYTES * PAGE_BYTES
    pages = bytearray((offset_bytes + length_bytes - start + PAGE_BYTES - 1) // PAGE_BYTES)
    _MINCORE(address + start, offset_bytes + length_bytes - start, pages)
    return bytes(pages)
