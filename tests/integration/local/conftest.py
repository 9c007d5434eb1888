"""A local face over an SSD tier, and a look at this process's descriptors."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local import LocalFace, local_face


@pytest.fixture
def face(tmp_path: Path) -> Iterator[LocalFace]:
    with local_face(tmp_path) as running:
        yield running


def open_files() -> list[str]:
    """What this process has open, without what comes and goes by itself."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return sorted(one for one in found if not one.startswith("/proc/"))
