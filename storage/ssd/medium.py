"""What is known of the medium under a tier, from how its operations went: what is wrong, and when it is well again."""

import errno
import os
from pathlib import Path

import lmdb

from storage.base import Fact, TierObserver
from storage.clock import Clock

BAD_READS_IN_A_ROW = 8
"""So many reads may fail one after the other before it is the medium that fails, and not some places on it."""

_BAD_READS_TOLD_SECONDS = 600.0
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_BAD_PLACE = {errno.EIO, errno.ENODATA, errno.EILSEQ, errno.EUCLEAN, errno.EBADMSG, errno.EREMOTEIO, errno.ENOENT}
"""What a read fails with where bytes are lost for good. Others, such as too many open files, say nothing of them."""


def is_no_space(error: Exception) -> bool:
    """Whether an error says that the file system has no room left."""
    return isinstance(error, lmdb.DiskError) or (isinstance(error, OSError) and error.errno in _NO_SPACE)


class Medium:
    """Thread-safe: notes alone, and the last one stands.

    Args:
        name: the tier's.
        directory: what is on the medium.
        clock: how long failed reads are told of.
        observer: told when something begins or ends.
        spare_bytes: free bytes from which on a full file system is not full any more.
    """

    def __init__(self, name: str, directory: Path, clock: Clock, observer: TierObserver, *, spare_bytes: int) -> None:
        self._name, self._directory = name, directory
        self._clock, self._observer = clock, observer
        self._spare_bytes = spare_bytes
        self._bad_reads = 0
        self._last_bad_read = ""
        self._last_bad_read_at = 0.0
        self.bad_in_a_row = 0
        """Failed reads since the last good one."""
        self.unreadable: str | None = None
        """Why nothing can be read; None while something can."""
        self.unwritable: str | None = None
        """Why the last write failed; None when it did not."""
        self.is_full = False
        """Whether the file system had no room when it was last asked for some."""

    def notice(self, event: str, **facts: Fact) -> None:
        """Tell the observer."""
        self._observer.noticed(self._name, event, facts)

    def read_failed(self, error: Exception) -> bool:
        """A read failed. True when its bytes are taken for lost, False when the medium or the process is in trouble."""
        if not isinstance(error, OSError):
            self._cannot_read(str(error))
            return False
        if error.errno not in _BAD_PLACE:
            return False
        self.bad_in_a_row += 1
        self._last_bad_read, self._last_bad_read_at = _words(error), self._clock.monotonic()
        if self.bad_in_a_row > BAD_READS_IN_A_ROW:
            self._cannot_read(_words(error))
            return False
        self._bad_reads += 1
        return True

    def read_well(self) -> None:
        """A read succeeded after failed ones."""
        self.bad_in_a_row = 0
        if self.unreadable is not None:
            self.unreadable = None
            self.notice("medium_recovered", operation="read")

    def write_failed(self, error: Exception) -> None:
        """A write, a sync or a commit failed."""
        if is_no_space(error) or self._is_cut_short(error):
            self.no_space()
            return
        if self.unwritable is None:
            self.notice("write_failed", error=_words(error), directory=str(self._directory))
        self.unwritable = _words(error)

    def written(self) -> None:
        """A write succeeded."""
        if self.unwritable is not None:
            self.unwritable = None
            self.notice("medium_recovered", operation="write")

    def no_space(self) -> None:
        """The file system has no room."""
        if not self.is_full:
            self.is_full = True
            self.notice("no_space", directory=str(self._directory))

    def look_for_space(self) -> None:
        """Ask a file system that was full whether it still is. Raises OSError."""
        if self.is_full and not self._has_no_space():
            self.is_full = False
            self.notice("space_again", directory=str(self._directory))

    def trouble(self) -> str | None:
        """What is wrong; None where nothing is."""
        told = []
        if self.unreadable is not None:
            told.append(f"{self._directory} cannot be read ({self.unreadable})")
        if self.unwritable is not None:
            told.append(f"{self._directory} cannot be written ({self.unwritable}): new records are not kept")
        if self.is_full:
            told.append(
                f"the file system of {self._directory} has no room left:"
                " new records take the place of old ones or are refused"
            )
        is_recent = self._clock.monotonic() - self._last_bad_read_at < _BAD_READS_TOLD_SECONDS
        if self._bad_reads and is_recent:
            told.append(
                f"{self._bad_reads} reads of {self._directory} failed so far, the last one within ten minutes"
                f" ({self._last_bad_read}): those records were dropped"
            )
        return "; ".join(told) or None

    def _is_cut_short(self, error: Exception) -> bool:
        """Whether an error of LMDB is a write that a full file system cut short: LMDB calls that an I/O error."""
        try:
            return isinstance(error, lmdb.Error) and self._has_no_space()
        except OSError:
            return False

    def _has_no_space(self) -> bool:
        """Asked of the file system. Raises OSError."""
        free = os.statvfs(self._directory)
        return free.f_bavail * free.f_frsize < self._spare_bytes

    def _cannot_read(self, why: str) -> None:
        if self.unreadable is None:
            self.notice("medium_failed", error=why, directory=str(self._directory))
        self.unreadable = why


def _words(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
