"""Random histories of a whole service against the truth: what it promises, sends, keeps and counts.

Every failure names its seed. The soak plays many more, and one again::

    python -m tests.load.soak --only simulation --count 1 --seed N
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.simulation.histories import KINDS, PROFILES, Kind, play

EVERYWHERE = (
    "duplicate none",
    "lease gone",
    "lease limit",
    "planned again",
    "ran cold by itself",
    "ran resident exact",
    "refused below_write_floor",
    "refused corrupt",
    "refused no_boundary",
    "refused wrong_shard",
    "refused wrong_size",
    "released too late",
    "replaced none",
    "the_service_dies_and_starts",
    "the_service_stops_and_starts",
)
"""What histories of any model must have had, or they prove little."""
WITH_SNAPSHOTS = (
    "asked for a cold plan",
    "asked for the fallback",
    "fell back",
    "fell back by itself",
    "fetched again after another shard fell back",
    "fetched twice",
    "lost tier_down",
    "named the plan that was void",
    "ran snapshot approximate",
    "ran snapshot exact",
    "second-guessed",
)

WITH_FAULTS = ("a block was missing", "crashed in a write", "fell back", "lost tier_down", "refused corrupt")


def play_some(kind: Kind, count: int) -> Counter[str]:
    """Play ``count`` histories; what was seen in all of them."""
    seen: Counter[str] = Counter()
    for seed in range(count):
        seen += play(kind, seed)
    return seen


def check_variety(seen: Counter[str], expected: Iterable[str]) -> None:
    """Histories in which nothing happens prove nothing."""
    assert not [what for what in expected if not seen[what]]
    assert seen["stored none"] > 1000
    ran = Counter({what: count for what, count in seen.items() if what.startswith("ran ")})
    assert ran.total() - ran["ran cold exact"] - ran["ran cold by itself"] > 100


@pytest.mark.parametrize("name", PROFILES)
def test_the_service_tells_the_truth(name: str) -> None:
    seen = play_some(KINDS[name], 20)
    expected = {*EVERYWHERE}
    if PROFILES[name].global_rows:
        expected.update(("a block was missing", "kept what came"))
    if PROFILES[name].state_layers:
        expected.update(WITH_SNAPSHOTS)
    check_variety(seen, expected)


def test_the_service_tells_the_truth_over_an_ssd() -> None:
    check_variety(play_some(KINDS["on an SSD"], 8), EVERYWHERE)


@pytest.mark.parametrize("name", ["faults", "faults, exact"])
def test_whatever_fails_nothing_is_lost_that_was_acknowledged(name: str) -> None:
    seen = play_some(KINDS[name], 8)
    check_variety(seen, WITH_FAULTS)
    assert seen["acknowledged as durable"] > 500
    assert seen["found again as durable"] > 1000


def test_equal_seeds_make_equal_histories() -> None:
    for name in ("bounded", "faults"):
        first, second = (play(replace(KINDS[name], steps=200), 1) for _ in range(2))
        assert first == second
