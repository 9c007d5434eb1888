"""A face over in-process tiers on a manual clock, and an independent HTTP client."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from storage.clock import ManualClock
from tests.support.live import Live, live
from tests.support.service import make_parts


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def face(tmp_path: Path, clock: ManualClock) -> Iterator[Live]:
    parts = make_parts(tmp_path, clock)
    with live(parts) as running:
        yield running
    parts.close()


@pytest.fixture
def http(face: Live) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=face.url, timeout=30) as client:
        yield client
