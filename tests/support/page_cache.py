"""The page cache of segment files: the service goes past it, and those who map the files do not."""

import os
from pathlib import Path


def bring_in(segments: Path) -> None:
    """Have all that is stored in the page cache."""
    for path in segments.glob("*.seg"):
        path.read_bytes()


def drop(segments: Path) -> None:
    """Have nothing of it there, but what is mapped and in use."""
    for path in segments.glob("*.seg"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
