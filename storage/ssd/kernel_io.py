"""Reads and writes that the kernel does side by side, without a thread for each: Linux AIO.

A thread a transfer costs as much processor time as all the rest of it: to be put to sleep, woken, and to wait its turn
in the interpreter. Here a call begins a transfer and another one waits for whichever has ended. The calls are the
kernel's own since neither Python nor the C library has them. Without direct access they are done as they are begun, one
by one.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from typing import NamedTuple


class _Calls(NamedTuple):
    """The numbers of the system calls."""

    setup: int
    destroy: int
    getevents: int
    submit: int


_CALLS = {"x86_64": _Calls(206, 207, 208, 209), "aarch64": _Calls(0, 1, 4, 2)}
_PREADV, _PWRITEV = 7, 8
_REQUEST = struct.Struct("<QIIHhIQQqQII")
"""``struct iocb``: the transfer's number, key, flags, what is done, priority, descriptor, where the buffers are listed,
how many those are, offset, and what is not used here.
"""
_BUFFER = struct.Struct("<QQ")
"""``struct iovec``."""
_ENDED = struct.Struct("<QQqq")
"""``struct io_event``: the transfer's number, where the request was, how many bytes moved, what is not used here."""


class Request:
    """A transfer made ready: images one behind the other are read from an offset of a descriptor, or written there.

    The images are whole ones of :mod:`.images`. They must live, and be left alone, from when it is begun until
    :meth:`KernelIO.wait` has named it; the request itself is of no use to anybody once it is begun.

    Args:
        number: what it is called when it has ended.
        descriptor: of the file.
        offset: where in it.
        images: what is moved.
        is_write: writes them.
        file: kept alive with the request, so that the descriptor is still the file's when it is begun.
    """

    __slots__ = ("_block", "_buffers", "_file", "address", "images", "is_write", "number")

    def __init__(
        self,
        number: int,
        descriptor: int,
        offset: int,
        images: Sequence[memoryview],
        *,
        is_write: bool = False,
        file: object = None,
    ) -> None:
        self.number, self.images, self.is_write, self._file = number, images, is_write, file
        self._buffers = ctypes.create_string_buffer(
            b"".join([_BUFFER.pack(ctypes.addressof(one.obj), one.nbytes) for one in images])  # type: ignore[arg-type]
        )
        code, listed = _PWRITEV if is_write else _PREADV, ctypes.addressof(self._buffers)
        packed = _REQUEST.pack(number, 0, 0, code, 0, descriptor, listed, len(images), offset, 0, 0, 0)
        self._block = ctypes.create_string_buffer(packed, len(packed))
        self.address = ctypes.addressof(self._block)
        """Where the kernel finds it."""


class KernelIO:
    """Transfers under way in the kernel. They are begun by one thread at a time, and waited for by one.

    Args:
        most: how many there may be at a time.
    """

    def __init__(self, most: int) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._most = most
        self._events = ctypes.create_string_buffer(_ENDED.size * most)
        calls = _CALLS.get(platform.machine())
        has_any = calls is not None and not self._call(calls.setup, most, ctypes.byref(self._context))
        self._calls = calls if has_any else None

    def begin(self, requests: Sequence[Request]) -> int:
        """Have images filled or written; how many were begun, the first ones. The kernel may take no more, or none."""
        if self._calls is None or not requests:
            return 0
        pointers = (ctypes.c_void_p * len(requests))(*[request.address for request in requests])
        begun: int = self._call(self._calls.submit, self._context, ctypes.c_long(len(requests)), pointers)
        return max(0, begun)

    def wait(self) -> list[tuple[int, int]]:
        """Wait for transfers to end, one at least, while some are under way: their numbers, and how many bytes moved.

        Fewer than were asked for: there are no more, or, below 0, it failed with that ``errno``.
        """
        if self._calls is None:
            return []
        counts = ctypes.c_long(1), ctypes.c_long(self._most)
        count = -1
        while count < 0:
            count = self._call(self._calls.getevents, self._context, *counts, self._events, None)
            if count < 0 and ctypes.get_errno() != errno.EINTR:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        ended = memoryview(self._events)[: count * _ENDED.size]
        return [(number, nbytes) for number, _, nbytes, _ in _ENDED.iter_unpack(ended)]

    def close(self) -> None:
        """Give the kernel back what it keeps for them. None is under way."""
        if self._calls is not None:
            self._call(self._calls.destroy, self._context)
            self._calls = None
