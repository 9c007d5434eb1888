"""The socket file: made so that only this user can open it, and gone when the service has stopped."""

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvshelf_client.local.address import short_path

_BACKLOG = 64


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A socket that listens at ``path`` for as long as this lasts. What an ended process left there is removed first.

    Raises:
        OSError: there is something else at ``path``, another process listens there, or it cannot be made.
    """
    try:
        listener = _listen(path)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on the local socket {path}: {error.strerror}") from None
    made = path.stat().st_ino
    try:
        yield listener
    finally:
        listener.close()
        if path.exists() and path.stat().st_ino == made:
            with suppress(OSError):  # A file system that turned read-only keeps it; the next start takes it over.
                path.unlink()


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # The file is made with this mode: nobody else can ever open it.
        with short_path(path) as name:
            _remove_left_over(path, name)
            listener.bind(name)
        listener.listen(_BACKLOG)
    except BaseException:  # whatever it was, nobody else closes it
        listener.close()
        raise
    return listener


def _remove_left_over(path: Path, name: str) -> None:
    if not path.is_symlink() and not path.exists():
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise OSError(errno.EEXIST, "there is something else that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(name)
        except ConnectionRefusedError:
            path.unlink()
            return
    raise OSError(errno.EADDRINUSE, "another process listens there")
