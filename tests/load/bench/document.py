"""Put the results of a run into docs/performance.md: ``python -m tests.load.bench.document bench.json [more.json]``.

Several files, such as of runs of some cases each, are put together; of a result that is in two, the last one counts.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from service.cli import console
from tests.load.bench.base import GOALS

DOCUMENT = Path(__file__).parents[3] / "docs" / "performance.md"
BEGIN, END = "<!-- results of make bench -->", "<!-- end of results -->"
_TOLD = ("at", "commit", "cpu", "cores", "memory_gib", "load_before", "kernel", "python")
_MARKS = {"aim": "aim", "floor": "floor", "below": "**below**"}


def together(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Runs as one: its conditions are those of the last."""
    whole: dict[str, Any] = {"ratios": {}, "costs": {}, "figures": {}, "conditions": runs[-1]["conditions"]}
    for run in runs:
        for part in ("ratios", "costs", "figures"):
            whole[part] |= run[part]
    return whole


def lines_of(run: Mapping[str, Any]) -> list[str]:
    """The results as Markdown."""
    under = run["conditions"]
    lines = ["Run under: " + ", ".join(f"{name} {under[name]}" for name in _TOLD if name in under) + ".", ""]
    lines += ["| result | median | floor | aim | reaches |", "|---|---|---|---|---|"]
    for name, value in {**run["ratios"], **run["costs"]}.items():
        goal = GOALS.get(name)
        goals = f"{goal.floor:g} | {goal.aim:g} | {_MARKS[goal.meets(value)]}" if goal else "| | "
        lines.append(f"| `{name}` | {value:.3g} | {goals} |")
    lines += ["", "| measured | median |", "|---|---|"]
    return lines + [f"| `{name}` | {value:.3g} |" for name, value in run["figures"].items()]


def updated(text: str, run: Mapping[str, Any]) -> str:
    """A document with the results between its marks.

    Raises:
        ValueError: it lacks the marks.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no place for results: {BEGIN} and {END} are not both there")
    return "\n".join([before + begin, "", *lines_of(run), "", end + after])


def main(arguments: Sequence[str], document: Path = DOCUMENT) -> int:
    """The command."""
    if not arguments:
        console.warn("usage: python -m tests.load.bench.document bench.json [more.json ...]")
        return 2
    run = together([json.loads(Path(name).read_text(encoding="utf-8")) for name in arguments])
    document.write_text(updated(document.read_text(encoding="utf-8"), run), encoding="utf-8")
    console.say(f"updated {document}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
