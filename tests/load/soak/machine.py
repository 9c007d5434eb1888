"""Programs of all verbs in any order against a dictionary: see :mod:`tests.property.store_machine`."""

from collections import Counter

from hypothesis import HealthCheck, Verbosity, settings
from hypothesis import seed as seeded
from hypothesis.stateful import run_state_machine_as_test

from tests.load.soak.base import Progress, Summary, Trial
from tests.property.store_machine import StoreMachine

STEPS = 60
RULES = (
    "delete", "fetch", "plan", "register again", "release", "restart", "store", "the pool goes or comes",
    "the pool is emptied", "time passes", "touch",
)  # fmt: skip
ENOUGH = 50
"""So many programs follow every rule between them."""


def run(count: int, seed: int, progress: Progress) -> Summary:
    """Run ``count`` programs."""
    tried: Counter[str] = Counter()

    @seeded(seed)
    class Counted(StoreMachine):
        def teardown(self) -> None:
            super().teardown()
            tried["programs"] += 1
            tried.update(self.tried)
            progress(tried["programs"], "a program ended well")

    how = settings(
        max_examples=count,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    run_state_machine_as_test(Counted, settings=how)
    summary = Summary(tried)
    if count >= ENOUGH:
        summary.failures += [f"no program had {what!r}" for what in RULES if not tried[what]]
    return summary


TRIAL = Trial(
    name="machine",
    about="verbs in any order do to the store what they do to a dictionary",
    unit="programs",
    full=1000,
    run=run,
)
