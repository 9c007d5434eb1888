"""Random histories of a whole service against the truth: what it promises, sends, keeps and counts.

Every failure names its seed. ``KVSHELF_TEST_HISTORIES`` plays so many histories of each kind instead of a few, from
``KVSHELF_TEST_FIRST_SEED`` on::

    KVSHELF_TEST_HISTORIES=1000 python -m pytest tests/simulation/test_service_truth.py
"""

import os
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from service.planner.base import Replay
from service.profiles import Profile
from service.profiles.geometry import GlobalRows, Part, State, WindowRows
from service.shelf import fetching
from tests.simulation.world import World
from tests.support.tiers import MemoryFactory, SsdFactory, TierFactory

HISTORIES = int(os.environ.get("KVSHELF_TEST_HISTORIES", "0"))
FIRST_SEED = int(os.environ.get("KVSHELF_TEST_FIRST_SEED", "0"))
STEPS = 400
MEMORY_BUDGET_BYTES = 64 << 10
"""Some sixty blocks."""
SSD_BUDGET_BYTES = 2 << 20
"""Some four hundred blocks."""
TIMEOUT_SECONDS = 120 + 10 * HISTORIES

ROWS = (GlobalRows(1, (Part("u8", (10,)),)),)


def windows(layers: int, tokens: int) -> tuple[WindowRows, ...]:
    return (WindowRows(layers, tokens, (Part("u8", (10,)),)),)


PROFILES = {
    "bounded": Profile("bounded", replay=Replay.BOUNDED, global_rows=ROWS, window_rows=windows(2, 3)),
    "bounded with a decoder": Profile(
        "decoder", replay=Replay.BOUNDED, decoder_window_tokens=6, global_rows=ROWS, window_rows=windows(3, 5)
    ),
    "exact": Profile("exact", replay=Replay.EXACT, global_rows=ROWS, window_rows=windows(3, 2)),
    "all windowed": Profile("windowed", replay=Replay.EXACT, window_rows=windows(2, 5)),
    "recurrent": Profile("recurrent", global_rows=ROWS, recurrent_state=(State(3, (Part("u8", (20,)),)),)),
    "full attention": Profile("full", global_rows=ROWS),
}
BLOCK_TOKENS = 4

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


def play(
    profile: Profile, make_factory: type[TierFactory], budget_bytes: int, count: int, steps: int = STEPS
) -> Counter[str]:
    """Play ``count`` histories; what was seen in all of them."""
    seen: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        with tempfile.TemporaryDirectory() as directory:
            factory = make_factory(Path(directory), _no_redis)
            world = World(profile, BLOCK_TOKENS, seed, factory, budget_bytes)
            try:
                for _ in range(steps):
                    world.step()
                world.finish()
            except Exception as error:  # Whatever went wrong is told with the seed that repeats it.
                raise AssertionError(f"seed {seed}, step {world.steps}: {error}") from error
            finally:
                factory.close()
            seen += world.seen
    return seen


def _no_redis() -> str:
    raise AssertionError("no Redis here")


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch of more than three blocks has several batches, between which anything may happen."""
    monkeypatch.setattr(fetching, "BATCH_RECORDS", 3)


def check_variety(seen: Counter[str], expected: Iterable[str]) -> None:
    """Histories in which nothing happens prove nothing. Seeds of somebody's choice may be as dull as they are."""
    if HISTORIES:
        return
    assert not [what for what in expected if not seen[what]]
    assert seen["stored none"] > 1000
    ran = Counter({what: count for what, count in seen.items() if what.startswith("ran ")})
    assert ran.total() - ran["ran cold exact"] - ran["ran cold by itself"] > 100


@pytest.mark.timeout(TIMEOUT_SECONDS)
@pytest.mark.parametrize("name", PROFILES)
def test_the_service_tells_the_truth(name: str) -> None:
    seen = play(PROFILES[name], MemoryFactory, MEMORY_BUDGET_BYTES, HISTORIES or 20)
    expected = {*EVERYWHERE}
    if PROFILES[name].global_rows:
        expected.update(("a block was missing", "kept what came"))
    if PROFILES[name].state_layers:
        expected.update(WITH_SNAPSHOTS)
    check_variety(seen, expected)


@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_the_service_tells_the_truth_over_an_ssd() -> None:
    check_variety(play(PROFILES["bounded"], SsdFactory, SSD_BUDGET_BYTES, HISTORIES or 8), EVERYWHERE)


def test_equal_seeds_make_equal_histories() -> None:
    first, second = (play(PROFILES["bounded"], MemoryFactory, MEMORY_BUDGET_BYTES, 1, steps=200) for _ in range(2))
    assert first == second
