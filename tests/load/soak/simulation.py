"""Simulated histories of a whole service: one on each kind of model and tier in turn, a seed each."""

from tests.load.soak.base import Progress, Summary, Trial
from tests.simulation.histories import KINDS, play


def run(count: int, seed: int, progress: Progress) -> Summary:
    """Play ``count`` seeds from ``seed`` on, each on every kind of history."""
    summary = Summary()
    for done, number in enumerate(range(seed, seed + count)):
        for name, kind in KINDS.items():
            summary.tried["histories"] += 1
            summary.tried["steps"] += kind.steps
            try:
                summary.tried.update(play(kind, number))
            except AssertionError as error:
                summary.failures.append(f"{name}: {error}")
            progress(done, name)
    return summary


TRIAL = Trial(
    name="simulation",
    about="no history of faults makes a service lose, send or claim what is not so",
    unit="seeds",
    full=1000,
    run=run,
)
