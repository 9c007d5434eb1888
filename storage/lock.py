"""One process a data directory: a lock file that the kernel lets go of when its holder dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

LOCK_NAME = "kvshelf.lock"
_MAX_PID_BYTES = 20


class DirectoryLockedError(Exception):
    """Another process (or another lock of this one) holds the directory. ``pid`` is None where it cannot be told."""

    def __init__(self, directory: Path, pid: int | None) -> None:
        self.directory = directory
        self.pid = pid
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"{directory} is in use by {holder}; stop it or choose another data directory")


class DirectoryLock:
    """Holds a data directory from construction to :meth:`release`, or to the end of the process however it ends.

    The directory is made if it is not there. The lock file stays behind on purpose: removing it would let two
    processes hold locks on two files of the same name. A child forked without exec shares the lock.

    Raises:
        DirectoryLockedError: at once, when the directory is held.
        OSError: the directory cannot be made or written.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._file: int | None = os.open(self.directory / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            pid = _pid_in(self._file)
            self.release()
            raise DirectoryLockedError(self.directory, pid) from None
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Let go. May be called more than once."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> "DirectoryLock":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


@contextmanager
def nobody_writes(directory: Path) -> Iterator[None]:
    """As long as this lasts nobody can take the directory. Writes nothing, so it works where nothing can be written.

    Raises:
        DirectoryLockedError: at once, when somebody has it.
        OSError: it cannot be looked at.
    """
    path = directory / LOCK_NAME
    if not path.exists():
        yield
        return
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise DirectoryLockedError(directory, _pid_in(file)) from None
    finally:
        os.close(file)


def _pid_in(file: int) -> int | None:
    text = os.pread(file, _MAX_PID_BYTES, 0).strip()
    return int(text) if text.isdigit() else None
