"""One process a data directory, and no longer than it lives."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from storage.lock import LOCK_NAME, DirectoryLock, DirectoryLockedError

HOLDER = """
import sys
from storage.lock import DirectoryLock
lock = DirectoryLock(sys.argv[1])
sys.stdout.write("held\\n")
sys.stdout.flush()
sys.stdin.read()
"""


def test_a_second_open_fails_at_once_and_names_the_holder(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path), pytest.raises(DirectoryLockedError) as caught:
        DirectoryLock(tmp_path)
    assert caught.value.pid == os.getpid()
    assert str(os.getpid()) in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_it_can_be_held_again_after_release(tmp_path: Path) -> None:
    first = DirectoryLock(tmp_path)
    first.release()
    first.release()
    with DirectoryLock(tmp_path):
        assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"


def test_a_failed_open_does_not_let_the_holder_go(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path):
        for _ in range(2):
            with pytest.raises(DirectoryLockedError):
                DirectoryLock(tmp_path)
    with DirectoryLock(tmp_path):
        pass


def test_two_directories_are_held_at_once_and_made_where_missing(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path / "a" / "b"), DirectoryLock(tmp_path / "c"):
        assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("content", [b"", b"not a pid\n"])
def test_a_holder_that_cannot_be_told_is_called_another_process(tmp_path: Path, content: bytes) -> None:
    with DirectoryLock(tmp_path):
        (tmp_path / LOCK_NAME).write_bytes(content)
        with pytest.raises(DirectoryLockedError, match="another process") as caught:
            DirectoryLock(tmp_path)
    assert caught.value.pid is None


def test_the_death_of_its_holder_releases_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DirectoryLockedError, match=str(holder.pid)):
            DirectoryLock(tmp_path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with DirectoryLock(tmp_path):
            assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"


def test_a_program_started_by_the_holder_does_not_keep_it(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"started\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"started\n"
        lock.release()
        with DirectoryLock(tmp_path):
            assert child.poll() is None


def test_a_directory_that_cannot_be_made_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        DirectoryLock(tmp_path / "file")
