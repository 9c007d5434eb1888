"""A service over in-process tiers, on a manual clock. After each test everything must add up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.shelf.parts import Parts
from storage.clock import ManualClock
from tests.support.service import make_parts


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def parts(tmp_path: Path, clock: ManualClock) -> Iterator[Parts]:
    parts = make_parts(tmp_path, clock)
    yield parts
    parts.leases.check_integrity()
    parts.leases.release_all()
    for tier in (parts.blocks, parts.snapshots):
        tier.check_integrity()
        assert tier.usage().pinned_bytes == 0, f"the {tier.name} tier is left with pins"
    parts.close()
