"""The segment files: made, written, read, synced and removed by number. Which bytes mean what, the index knows."""

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path

from storage.buffers import behind
from storage.ssd.format import PAGE_BYTES, sync_directory
from storage.ssd.kernel_io import KernelIO, Request

_OPEN_FILES = 256
_BUFFERS_PER_CALL = 1023
_BYTES_PER_CALL = 8 << 20
_SUFFIX = ".seg"


class _File:
    """An open descriptor that is closed when the last user lets go of it.

    It goes past the page cache, where the file system can do that (an older tmpfs cannot).
    """

    __slots__ = ("descriptor",)

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            self.descriptor = os.open(path, flags | os.O_DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self.descriptor = os.open(path, flags)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


class SegmentFiles:
    """Segments in one directory. Reads from any thread; everything else from one writer at a time.

    Args:
        directory: where the files are; made when it is not there.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.unsynced: set[int] = set()
        """The segments with writes that were not synced yet."""
        self._open: OrderedDict[int, _File] = OrderedDict()
        self._lock = threading.Lock()

    def path(self, number: int) -> Path:
        """Where a segment is."""
        return self.directory / f"{number:06}{_SUFFIX}"

    def sizes(self) -> dict[int, int]:
        """The size of every segment file, by number. Whatever else is in the directory is removed."""
        found: dict[int, int] = {}
        for entry in os.scandir(self.directory):
            stem = entry.name.removesuffix(_SUFFIX)
            if stem.isdecimal() and self.path(int(stem)).name == entry.name:
                found[int(stem)] = entry.stat().st_size
            elif entry.is_file():
                os.unlink(entry.path)
        return found

    def create(self, number: int, size_bytes: int) -> None:
        """Make a segment whose space is all allocated, durably. Raises OSError (ENOSPC) and leaves nothing behind."""
        path = self.path(number)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
            os.ftruncate(descriptor, size_bytes)
            os.fsync(descriptor)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(descriptor)
        sync_directory(self.directory)

    def remove(self, number: int) -> None:
        """Give a segment's space back to the file system. No error when it is gone already."""
        with self._lock:
            self._open.pop(number, None)
        self.unsynced.discard(number)
        self.path(number).unlink(missing_ok=True)

    def write(self, number: int, offset: int, images: Sequence[memoryview]) -> None:
        """Write images one behind the other, past the page cache and without copying them. Raises OSError."""
        file = self._get(number)
        self.unsynced.add(number)
        for batch in _batches(images):
            offset = _write_all(file.descriptor, offset, batch)

    def read(self, number: int, offset: int, images: Sequence[memoryview]) -> None:
        """Fill images, one behind the other, with what is there, and with zeros where the file ends before.

        Raises OSError.
        """
        file = self._get(number)
        left = list(images)
        while left:
            done = os.preadv(file.descriptor, left, offset)
            if not done:
                for image in left:
                    image[:] = bytes(image.nbytes)
                return
            offset += done
            left = behind(left, done)

    def request(
        self, number: int, segment: int, offset: int, images: Sequence[memoryview], *, is_write: bool = False
    ) -> Request:
        """What :meth:`read` does, or :meth:`write`, made ready to be begun under a number. Raises OSError."""
        file = self._get(segment)
        if is_write:
            self.unsynced.add(segment)
        return Request(number, file.descriptor, offset, images, is_write=is_write, file=file)

    def begin(self, kernel: KernelIO, requests: Sequence[Request]) -> int:
        """Begin requests; how many were, the first ones.

        Fewer bytes than images have may be moved, for whatever reason: then :meth:`read` or :meth:`write` tells it.
        """
        return kernel.begin(requests)

    def bring_into_cache(self, number: int, offset: int, size_bytes: int) -> None:
        """Have the kernel read a stretch into the page cache, for processes that map the file. Raises OSError."""
        os.posix_fadvise(self._get(number).descriptor, offset, size_bytes, os.POSIX_FADV_WILLNEED)

    def open_to_read(self, number: int) -> int:
        """A new descriptor of a segment that cannot write it; the caller closes it. Raises OSError."""
        return os.open(self.path(number), os.O_RDONLY | os.O_CLOEXEC)

    def probe(self) -> None:
        """Write, sync and remove a page beside the segments, to see whether that can be done. Raises OSError."""
        path = self.directory / "probe"
        try:
            with path.open("wb") as file:
                file.write(bytes(PAGE_BYTES))
                file.flush()
                os.fdatasync(file.fileno())
        finally:
            path.unlink(missing_ok=True)

    def sync(self) -> None:
        """Make every write durable. Raises OSError; what was not synced by then is in doubt for good."""
        while self.unsynced:
            number = self.unsynced.pop()
            os.fdatasync(self._get(number).descriptor)

    def close(self) -> None:
        """Let go of all descriptors that nobody uses at the moment."""
        with self._lock:
            self._open.clear()

    def _get(self, number: int) -> _File:
        with self._lock:
            file = self._open.get(number)
            if file is None:
                file = self._open[number] = _File(self.path(number))
                if len(self._open) > _OPEN_FILES:
                    self._open.popitem(last=False)
            else:
                self._open.move_to_end(number)
            return file


def _batches(images: Sequence[memoryview]) -> Iterator[Sequence[memoryview]]:
    """Images in batches of about ``_BYTES_PER_CALL``: enough to keep the medium busy."""
    start = size = 0
    for index, image in enumerate(images):
        if size and (size + image.nbytes > _BYTES_PER_CALL or index - start == _BUFFERS_PER_CALL):
            yield images[start:index]
            start, size = index, 0
        size += image.nbytes
    if size:
        yield images[start:]


def _write_all(descriptor: int, offset: int, images: Sequence[memoryview]) -> int:
    """Write images through short writes; returns the offset behind them."""
    left = list(images)
    while left:
        done = os.pwritev(descriptor, left, offset)
        offset += done
        left = behind(left, done)
    return offset
