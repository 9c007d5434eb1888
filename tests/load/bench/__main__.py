"""``make bench``: run the benchmark, print the table, write ``bench.json``."""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from service.cli import console
from service.cli.child import INTERRUPTED, signals_interrupt
from service.cli.progress import Progress
from storage.clock import SystemClock
from tests.load.bench.base import Case
from tests.load.bench.cases import CASES
from tests.load.bench.conditions import conditions
from tests.load.bench.report import table
from tests.load.bench.run import Results, run_cases
from tests.load.bench.sizes import FULL, QUICK
from tests.load.bench.stage import Stage


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    asked = _parser().parse_args(arguments)
    known = {case.name: case for case in CASES}
    chosen = _with_references(asked.only or list(known))
    under = conditions()
    for name, value in under.items():
        console.say(f"{name:14} {value}")
    rounds = 1 if asked.quick else asked.rounds
    try:
        with signals_interrupt():
            results = _measure(asked, [known[name] for name in known if name in chosen], rounds)
    except KeyboardInterrupt:
        return INTERRUPTED
    console.say()
    for line in table(results):
        console.say(line)
    asked.out.write_text(json.dumps({"conditions": under, **asdict(results)}, indent=1) + "\n", encoding="utf-8")
    console.say(f"written to {asked.out}")
    return 0


def _measure(asked: argparse.Namespace, kinds: Sequence[type[Case]], rounds: int) -> Results:
    """Run the cases; however that ends, nothing of them is left."""
    progress = Progress("bench", clock=SystemClock(), on_terminal=console.is_terminal())
    with closing(Stage(QUICK if asked.quick else FULL, asked.dir)) as stage:
        try:
            return run_cases(stage, kinds, rounds, lambda share, what: progress.update(share, lambda: what))
        finally:
            progress.clear()


def _with_references(names: Sequence[str]) -> set[str]:
    """The cases asked for and whatever they are compared with; raises SystemExit on an unknown name."""
    references = {case.name: case.references for case in CASES}
    unknown = sorted(set(names) - set(references))
    if unknown:
        raise SystemExit(f"no case is called {', '.join(unknown)}; there are {', '.join(references)}")
    return set(names) | {reference for name in names for reference in references[name]}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.load.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of small sizes: shows that it works, no more")
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is measured")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="these cases and their references alone")
    parser.add_argument("--out", type=Path, default=Path("bench.json"), help="where the results go")
    parser.add_argument("--dir", type=Path, help="a directory on the disk that is to be measured")
    return parser


if __name__ == "__main__":
    sys.exit(main())
