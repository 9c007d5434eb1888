"""Fixtures of the contract tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.base import Tier
from tests.support.tiers import FACTORIES, TierFactory


@pytest.fixture(params=FACTORIES, ids=lambda kind: kind.name)
def factory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TierFactory]:
    """A factory of every kind of tier in turn; the test's tiers are checked and closed after it."""
    kind: type[TierFactory] = request.param
    made = kind(tmp_path, lambda: str(request.getfixturevalue("redis_url")))
    yield made
    made.close()


@pytest.fixture
def tier(factory: TierFactory) -> Iterator[Tier]:
    """An empty tier with ample room and a TTL of an hour. After the test its accounts must add up."""
    made = factory.make()
    yield made
    made.check_integrity()
