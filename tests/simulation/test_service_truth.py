"""Random histories of a whole service against the truth: what it promises, sends, keeps and counts.

Every failure names its seed. The soak plays many more, and one again::

    python -m tests.load.soak --only simulation --count 1 --seed N
"""

from collections import Counter
from dataclasses import replace

import pytest

from tests.simulation.histories import KINDS, PROFILES, Kind, play
from tests.simulation.variety import missing_in


def play_some(kind: Kind, count: int) -> Counter[str]:
    """Play ``count`` histories; what was seen in all of them."""
    seen: Counter[str] = Counter()
    for seed in range(count):
        seen += play(kind, seed)
    return seen


@pytest.mark.parametrize("name", PROFILES)
def test_the_service_tells_the_truth(name: str) -> None:
    assert not missing_in(name, play_some(KINDS[name], 20))


def test_the_service_tells_the_truth_over_an_ssd() -> None:
    assert not missing_in("on an SSD", play_some(KINDS["on an SSD"], 8))


@pytest.mark.parametrize("name", ["faults", "faults, exact"])
def test_whatever_fails_nothing_is_lost_that_was_acknowledged(name: str) -> None:
    seen = play_some(KINDS[name], 8)
    assert not missing_in(name, seen)
    assert seen["acknowledged as durable"] > 500
    assert seen["found again as durable"] > 1000


def test_equal_seeds_make_equal_histories() -> None:
    for name in ("bounded", "faults"):
        first, second = (play(replace(KINDS[name], steps=200), 1) for _ in range(2))
        assert first == second
