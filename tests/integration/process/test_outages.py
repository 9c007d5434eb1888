"""Faults under load, for some seconds; the soak does it for an hour."""

from tests.load.soak import outages
from tests.load.soak.base import silent


def test_some_seconds_of_faults_lose_nothing_that_was_acknowledged() -> None:
    summary = outages.run(10, 1, silent)
    assert not summary.failures
    assert summary.tried["blocks acknowledged as durable"] > 50
    assert summary.tried["records received"] > 100
