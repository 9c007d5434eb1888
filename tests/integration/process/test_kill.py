"""Kill -9 while clients store, a few times; the soak does it a hundred times."""

from tests.load.soak import kills
from tests.load.soak.base import silent


def test_kills_lose_nothing_that_was_acknowledged() -> None:
    summary = kills.run(3, 0, silent)
    assert not summary.failures
    assert summary.tried["stores acknowledged"] > 50
