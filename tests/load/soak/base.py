"""What a trial is: something tried so and so often under a seed, and an account of what came of it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class Summary:
    """What came of a trial.

    ``tried`` counts what was done, ``figures`` has what was measured (the unit is in the name). ``failures`` has a
    sentence for each thing that was lost, wrong, late or hung; a trial with any has failed.
    """

    tried: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)


Progress = Callable[[int, str], None]
"""Told how much of the count is done, and a few words. It must be called at least every ``STALL_SECONDS``."""

STALL_SECONDS = 300.0
"""A trial that says nothing for so long hangs."""


@dataclass(frozen=True)
class Trial:
    """One trial of the soak.

    Args:
        name: for ``--only``.
        about: what it proves, in a line.
        unit: what is counted: ``seeds``, ``kills``, ``seconds`` and the like.
        full: the full count.
        run: tries ``count`` of them. Equal seeds try the same, as far as threads and processes allow. It raises what it
            did not expect, which fails the trial, too.
    """

    name: str
    about: str
    unit: str
    full: int
    run: Callable[[int, int, Progress], Summary]


def so_far(failures: Sequence[str]) -> str:
    """How many failures there are, and the latest, for those who watch."""
    return f"{len(failures)} failures" + (f", the latest: {failures[-1][:500]}" if failures else "")


def silent(done: int, words: str) -> None:
    """The progress of nobody, for tests."""
