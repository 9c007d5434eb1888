"""Histories to be played: the kinds of models and tiers they are about, and how one is played on a seed."""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from service.planner.base import Replay
from service.profiles import Profile
from service.profiles.geometry import GlobalRows, Part, State, WindowRows
from service.shelf import fetching
from tests.simulation.world import World
from tests.support.faulty import Fault
from tests.support.power_cut import PowerCutFactory
from tests.support.scratch import SCRATCH
from tests.support.tiers import MemoryFactory, SsdFactory, TierFactory

MEMORY_BUDGET_BYTES = 64 << 10
"""Some sixty blocks."""
SSD_BUDGET_BYTES = 2 << 20
"""Some four hundred blocks."""
AMPLE_BUDGET_BYTES = 16 << 20
"""More than a history stores."""
BLOCK_TOKENS = 4
FAULTS = {
    Fault.LATENCY: 0.02,
    Fault.ERROR: 0.02,
    Fault.LOST_ANSWER: 0.02,
    Fault.TRUNCATION: 0.01,
    Fault.BIT_FLIP: 0.01,
    Fault.CRASH: 0.04,
}

_ROWS = (GlobalRows(1, (Part("u8", (10,)),)),)


def _windows(layers: int, tokens: int) -> tuple[WindowRows, ...]:
    return (WindowRows(layers, tokens, (Part("u8", (10,)),)),)


PROFILES = {
    "bounded": Profile("bounded", replay=Replay.BOUNDED, global_rows=_ROWS, window_rows=_windows(2, 3)),
    "bounded with a decoder": Profile(
        "decoder", replay=Replay.BOUNDED, decoder_window_tokens=6, global_rows=_ROWS, window_rows=_windows(3, 5)
    ),
    "exact": Profile("exact", replay=Replay.EXACT, global_rows=_ROWS, window_rows=_windows(3, 2)),
    "all windowed": Profile("windowed", replay=Replay.EXACT, window_rows=_windows(2, 5)),
    "recurrent": Profile("recurrent", global_rows=_ROWS, recurrent_state=(State(3, (Part("u8", (20,)),)),)),
    "full attention": Profile("full", global_rows=_ROWS),
}


@dataclass(frozen=True)
class Kind:
    """What a history is about: a model, and the tier that keeps its blocks."""

    profile: Profile
    make_factory: type[TierFactory]
    budget_bytes: int
    steps: int = 320
    is_ample: bool = False
    faults: Mapping[Fault, float] = field(default_factory=dict)


KINDS = {
    **{name: Kind(profile, MemoryFactory, MEMORY_BUDGET_BYTES) for name, profile in PROFILES.items()},
    "on an SSD": Kind(PROFILES["bounded"], SsdFactory, SSD_BUDGET_BYTES),
    "faults": Kind(PROFILES["bounded"], PowerCutFactory, AMPLE_BUDGET_BYTES, is_ample=True, faults=FAULTS),
    "faults, exact": Kind(PROFILES["exact"], PowerCutFactory, AMPLE_BUDGET_BYTES, is_ample=True, faults=FAULTS),
}


def play(kind: Kind, seed: int) -> Counter[str]:
    """Play one history; what was seen in it.

    Raises:
        AssertionError: something was not as promised; the text names the seed and the step.
    """
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory, _small_batches():
        factory = kind.make_factory(Path(directory), _no_redis)
        world = World(
            kind.profile,
            BLOCK_TOKENS,
            seed,
            factory,
            kind.budget_bytes,
            is_ample=kind.is_ample,
            faults=kind.faults,
        )
        try:
            for _ in range(kind.steps):
                world.step()
            world.finish()
        except Exception as error:  # Whatever went wrong is told with the seed that repeats it.
            raise AssertionError(f"seed {seed}, step {world.steps}: {error}") from error
        finally:
            factory.close()
        return world.seen


@contextmanager
def _small_batches() -> Iterator[None]:
    """A fetch of more than three blocks has several batches, between which anything may happen."""
    usual = fetching.BATCH_RECORDS
    fetching.BATCH_RECORDS = 3
    try:
        yield
    finally:
        fetching.BATCH_RECORDS = usual


def _no_redis() -> str:
    raise AssertionError("no Redis here")
