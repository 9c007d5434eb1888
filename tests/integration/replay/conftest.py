"""Every test here has a real service to replay against."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stage import Stage, staged


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path) as made:
        yield made
