"""A local face over an SSD tier, alone or in a whole service, and a look at this process's descriptors."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.clock import ManualClock
from tests.support.live import Live, live
from tests.support.local import LocalFace, local_face, local_parts


@pytest.fixture
def face(tmp_path: Path) -> Iterator[LocalFace]:
    with local_face(tmp_path) as running:
        yield running


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Live]:
    parts = local_parts(tmp_path, ManualClock())
    with live(parts, with_local=True) as running:
        yield running
    parts.close()


def segments(service: Live) -> Path:
    """Where the segments of that service are."""
    return service.parts.settings.store.data_dir / "shelf/segments"


def open_files() -> list[str]:
    """What this process has open, without what comes and goes by itself."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return sorted(one for one in found if not one.startswith("/proc/"))
