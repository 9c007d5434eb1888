"""The data directory: nobody else's, for nobody else's eyes, and for one process at a time."""

import stat
from pathlib import Path

import structlog

from storage.lock import LOCK_NAME, DirectoryLock
from storage.ssd.format import FORMAT_FILE, UnusableDirectoryError

_LEFT_BY_A_FIRST_START = frozenset({LOCK_NAME, f"{FORMAT_FILE}.new", "namespaces", "tenants", "lost+found"})
"""What may be there without a format: a start that broke off halfway, or a new file system."""
_LOG = structlog.get_logger("kvshelf.data_dir")


def open_data_dir(directory: Path) -> DirectoryLock:
    """Make the directory, or see that it is one of kvshelf's, close it to others and lock it.

    Raises:
        UnusableDirectoryError: it holds something that is not kvshelf's. Nothing was touched.
        DirectoryLockedError: another process has it.
        OSError: it cannot be made or opened.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (directory / FORMAT_FILE).exists():
        foreign = sorted(path.name for path in directory.iterdir() if path.name not in _LEFT_BY_A_FIRST_START)
        if foreign:
            more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
            raise UnusableDirectoryError(
                f"{directory} holds {', '.join(foreign[:3])}{more} but no {FORMAT_FILE}, so it is no data directory of"
                " kvshelf: name another, or an empty one"
            )
    lock = DirectoryLock(directory)
    _close_to_others(directory)
    return lock


def _close_to_others(directory: Path) -> None:
    """What an engine's users said is in there, as good as."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & 0o077:
        try:
            directory.chmod(mode & 0o700)
            _LOG.info("data_dir_closed_to_others", data_dir=str(directory), mode_before=f"{mode:04o}")
        except PermissionError:
            _LOG.warning("data_dir_open_to_others", data_dir=str(directory), mode=f"{mode:04o}")
