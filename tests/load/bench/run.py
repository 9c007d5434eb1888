"""Run the cases in rounds: in each round every case is measured right after its references."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from tests.load.bench.base import Case, Figures, NotHereError
from tests.load.bench.stage import Stage


@dataclass
class Results:
    """What a run found. ``raw`` has each case's figures, its references' among them, one entry a round."""

    raw: dict[str, list[Figures]] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def run_cases(stage: Stage, kinds: Sequence[type[Case]], rounds: int, tell: Callable[[float, str], None]) -> Results:
    """Set up, measure ``rounds`` times, take down; medians over the rounds. ``tell`` hears the share that is done."""
    results = Results()
    cases: dict[str, Case] = {}
    for number, kind in enumerate(kinds):
        tell(number / len(kinds) / (rounds + 1), f"setting up {kind.name}")
        case = kind()
        try:
            case.open(stage)
        except NotHereError as error:
            results.notes.append(f"{kind.name}: {error}")
            continue
        cases[kind.name] = case
    for turn in range(rounds):
        for number, (name, case) in enumerate(cases.items()):
            tell((turn + 1 + number / len(cases)) / (rounds + 1), f"round {turn + 1} of {rounds}: {name}")
            results.raw.setdefault(name, []).append(_measure(cases, case))
    for name, case in cases.items():
        _judge(case, results.raw[name], results)
    return results


def _measure(cases: dict[str, Case], case: Case) -> Figures:
    figures: Figures = {}
    for reference in case.references:
        figures |= cases[reference].run()
    return figures | case.run()


def _judge(case: Case, raw: list[Figures], results: Results) -> None:
    """Ratios are taken within a round: what disturbs one disturbs the other."""
    for name, (upper, lower) in case.ratios.items():
        results.ratios[name] = median(figures[upper] / figures[lower] for figures in raw)
    for name in raw[0]:
        if name in case.costs:
            results.costs[name] = median(figures[name] for figures in raw)
        else:
            results.figures.setdefault(name, median(figures[name] for figures in raw))
