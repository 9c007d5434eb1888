"""The results for people: one line a result with a bar, and its goals next to it."""

from collections.abc import Mapping

from tests.load.bench.base import GOALS
from tests.load.bench.run import Results

_WIDTH = 24
_MARKS = {"aim": "reaches the aim", "floor": "above the floor", "below": "BELOW THE FLOOR"}


def table(results: Results) -> list[str]:
    """The lines: ratios and costs with their goals, then all rates that were measured."""
    lines = [f"{'ratio':30} {'median':>8} {'floor':>7} {'aim':>7}  0 {'aim':>{_WIDTH - 1}}"]
    lines += [_line(name, value) for name, value in results.ratios.items()]
    lines += ["", f"{'cost':30} {'median':>8} {'floor':>7} {'aim':>7}"]
    lines += [_line(name, value) for name, value in results.costs.items()]
    lines += ["", "measured"]
    lines += _rates({name: value for name, value in results.figures.items() if name.endswith("_gb_s")})
    lines += [f"{name:30} {value:8.2f}" for name, value in results.figures.items() if not name.endswith("_gb_s")]
    return [*lines, "", *results.notes]


def _line(name: str, value: float) -> str:
    goal = GOALS.get(name)
    if goal is None:
        return f"{name:30} {value:8.2f}"
    share = goal.aim / value if goal.at_most else value / goal.aim
    return f"{name:30} {value:8.2f} {goal.floor:7.2f} {goal.aim:7.2f}  {_bar(share)}  {_MARKS[goal.meets(value)]}"


def _rates(figures: Mapping[str, float]) -> list[str]:
    most = max(figures.values(), default=1.0)
    return [f"{name:30} {value:8.2f} GB/s {'':10} {_bar(value / most)}" for name, value in figures.items()]


def _bar(share: float) -> str:
    filled = round(min(1.0, share) * _WIDTH)
    return "#" * filled + "." * (_WIDTH - filled)
