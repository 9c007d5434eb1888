"""The same trace under several values of one option."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from service.planner.base import Layout, ResumePlan
from service.simulate.options import SimulateOptions
from service.simulate.result import SimulationResult
from service.simulate.simulator import simulate
from service.traces.base import Trace, TraceRequest


@dataclass(frozen=True, slots=True)
class Sweep:
    """What to vary: the option as it is called on the command line, the field it sets, and its values as given."""

    option: str
    field: str
    values: Sequence[tuple[str, Any]]


class Step(NamedTuple):
    """One value of a sweep and what came of it."""

    value: str
    result: SimulationResult


def run_sweep(
    trace: Trace,
    layout: Layout,
    options: SimulateOptions,
    sweep: Sweep,
    on_progress: Callable[[int, TraceRequest, ResumePlan], None],
) -> list[Step]:
    """Simulate each value, all else as in ``options``; ``on_progress`` is told how many values are done, too.

    Raises:
        ValueError: as :func:`~service.simulate.simulator.simulate`.
    """
    steps: list[Step] = []
    for text, value in sweep.values:
        result = simulate(
            trace,
            layout,
            replace(options, **{sweep.field: value}),
            lambda request, plan: on_progress(len(steps), request, plan),
        )
        steps.append(Step(text, result))
    return steps
