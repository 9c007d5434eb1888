"""Random histories against the truth: no plan that claims to be exact stands on replayed KV."""

from collections import Counter

import pytest

from service.planner.base import Layout, Replay
from tests.simulation.taint import World

LAYOUTS = {
    "bounded": Layout(4, 40, 60, 3, 2, Replay.BOUNDED),
    "bounded with a decoder": Layout(4, 40, 60, 5, 3, Replay.BOUNDED, decoder_window_tokens=6),
    "window of one block": Layout(4, 40, 30, 4, 1, Replay.BOUNDED),
    "exact": Layout(3, 30, 50, 2, 3, Replay.EXACT),
    "recurrent": Layout(4, 40, 60, 0, 3, Replay.NONE),
    "full attention": Layout(4, 40, 0, 0, 0, Replay.NONE),
}


def histories(layout: Layout, count: int = 40, steps: int = 60) -> Counter[str]:
    """Play ``count`` histories; what was seen in all of them."""
    seen: Counter[str] = Counter()
    for seed in range(count):
        world = World(layout, seed)
        for step in range(steps):
            try:
                world.step()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, step {step}: {error}") from error
        seen += world.seen
    return seen


@pytest.mark.parametrize("name", LAYOUTS)
def test_no_plan_that_claims_to_be_exact_stands_on_replayed_kv(name: str) -> None:
    seen = histories(LAYOUTS[name])
    assert seen["stored untainted exact"] > 1000
    assert seen["stored tainted replayed"] > 500


def test_the_histories_have_it_all() -> None:
    """Every mode in each of its variants, taint that is stored, and claims that are refused."""
    seen = histories(LAYOUTS["bounded"])
    for mode in ("resident", "snapshot", "exact_rebuild"):
        assert seen[f"{mode} exact"] > 20
        assert seen[f"{mode} approximate"] > 20
    assert seen["bounded_replay approximate"] > 20
    assert seen["bounded_replay exact"] == 0
    assert seen["cold exact"] > 20
    assert seen["stored tainted replayed"] > 500
    assert seen["refused"] > 500


def test_equal_seeds_make_equal_histories() -> None:
    first, second = (World(LAYOUTS["bounded"], 7) for _ in range(2))
    for world in (first, second):
        for _ in range(30):
            world.step()
    assert first.records == second.records
    assert first.seen == second.seen
