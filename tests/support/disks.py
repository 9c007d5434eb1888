"""Small file systems of a test's own: one in memory that can be full, one on a loop device that can be made to fail.

They take the right to mount: root, or a container with CAP_SYS_ADMIN, and for the second one a free loop device and
mkfs.ext4. Without it a test fails and says so.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MIB = 1 << 20
_NEEDS = "this test mounts a small file system: run it as root, or in a container with CAP_SYS_ADMIN and loop devices"


def _run(*command: str) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{' '.join(command)}: {ended.stderr.strip()}; {_NEEDS}"
    return ended.stdout.strip()


@contextmanager
def memory_disk(directory: Path, size_bytes: int) -> Iterator[Path]:
    """A file system in memory with so much room."""
    mounted = directory / "memory"
    mounted.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(mounted))
    try:
        yield mounted
    finally:
        _run("umount", str(mounted))


def resize(mounted: Path, size_bytes: int) -> None:
    """Give a file system in memory more room, or less."""
    _run("mount", "-o", f"remount,size={size_bytes}", str(mounted))


class LoopDisk:
    """An ext4 file system without a journal, on a loop device over a file, that turns read-only at an error.

    Args:
        directory: has the file and where it is mounted.
        size_bytes: of the device.
    """

    def __init__(self, directory: Path, size_bytes: int) -> None:
        self.image, self.mounted = directory / "image", directory / "loop"
        self.mounted.mkdir()
        with self.image.open("wb") as file:
            file.truncate(size_bytes)
        _run("mkfs.ext4", "-q", "-O", "^has_journal", str(self.image))
        self.device = _run("losetup", "--find", "--show", str(self.image))
        try:
            _run("mount", "-o", "errors=remount-ro", self.device, str(self.mounted))
        except AssertionError:
            _run("losetup", "--detach", self.device)
            raise

    def turn_read_only(self) -> None:
        """Let the file system meet an error: it turns read-only under those who use it."""
        (Path("/sys/fs/ext4") / Path(self.device).name / "trigger_fs_error").write_text("kvshelf test\n")

    def lose_bytes_of(self, path: Path, offset: int) -> None:
        """From now on every read of the device from where ``offset`` of a file lies fails with EIO.

        What the page cache has of the file is dropped, so that it is read from the device again.
        """
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            start = _place_on_device(path, offset)
            os.truncate(self.image, start)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)

    def close(self) -> None:
        """Unmount it and let the device go."""
        _run("umount", str(self.mounted))
        _run("losetup", "--detach", self.device)


def _place_on_device(path: Path, offset: int) -> int:
    """Where a byte of a file lies on its device, as filefrag tells it in blocks of 4096."""
    for line in _run("filefrag", "-b4096", "-e", str(path)).splitlines():
        fields = line.replace("..", " ").replace(":", " ").split()
        if len(fields) > 5 and fields[0].isdecimal() and int(fields[1]) <= offset // 4096 <= int(fields[2]):
            return (int(fields[3]) + offset // 4096 - int(fields[1])) * 4096
    raise AssertionError(f"offset {offset} of {path} is nowhere")
