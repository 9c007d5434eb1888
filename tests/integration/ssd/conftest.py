"""A maker of SSD tiers in one directory on a manual clock."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ssd import SsdShelf


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[SsdShelf]:
    """Closes what it opened; a test that leaves a tier open has its accounts checked first."""
    made = SsdShelf(tmp_path / "data")
    yield made
    made.finish()
