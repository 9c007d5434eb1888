"""Simulated histories of a whole service: one on each kind of model and tier in turn, a seed each."""

from collections import Counter

from tests.load.soak.base import Progress, Summary, Trial, so_far
from tests.simulation.histories import KINDS, play
from tests.simulation.variety import missing_in

ENOUGH = 20
"""Of so many histories of a kind it is known what must have happened between them."""


def run(count: int, seed: int, progress: Progress) -> Summary:
    """Play ``count`` seeds from ``seed`` on, each on every kind of history."""
    summary = Summary()
    seen: dict[str, Counter[str]] = {name: Counter() for name in KINDS}
    for done, number in enumerate(range(seed, seed + count)):
        for name, kind in KINDS.items():
            summary.tried[f"histories, {name}"] += 1
            summary.tried["steps"] += kind.steps
            try:
                seen[name].update(play(kind, number))
            except AssertionError as error:
                summary.failures.append(f"{name}: {error}")
            progress(done, f"{name}; {so_far(summary.failures)}")
    for name, of_kind in seen.items():
        summary.tried.update(of_kind)
        if count >= ENOUGH:
            summary.failures += [f"{name}: never had {what}" for what in missing_in(name, of_kind)]
    return summary


TRIAL = Trial(
    name="simulation",
    about="no history of faults makes a service lose, send or claim what is not so",
    unit="seeds",
    full=1000,
    run=run,
)
