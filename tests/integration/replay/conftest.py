"""Every test here has a real service to replay against."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.support.stage import Stage, staged


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    # The service is in this process, and nobody configured its logs: they would go where a command's results go.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with staged(tmp_path) as made:
        yield made
    structlog.reset_defaults()
