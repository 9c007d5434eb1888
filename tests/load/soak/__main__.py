"""The soak's command line."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from service.cli import console
from service.cli.child import INTERRUPTED, signals_interrupt
from tests.load.soak.base import Trial
from tests.load.soak.runner import run_all, run_here
from tests.load.soak.trials import TRIALS

_EXAMPLES = """examples:
  python -m tests.load.soak                                all trials at their full counts
  python -m tests.load.soak --scale 0.01                   a hundredth of each, at least 1
  python -m tests.load.soak --only simulation --count 1 --seed 17    repeat what seed 17 did

exit status: 0 nothing was lost, wrong or late; 1 something was; 2 asked wrongly; 130 it was stopped
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.here:
        return _run_here(options)
    chosen = [trial for trial in TRIALS if not options.only or trial.name in options.only]
    counts = [(trial, _count(trial, options)) for trial in chosen]
    try:
        results = run_all(counts, options.seed, options.jobs, options.results)
    except KeyboardInterrupt:
        console.warn("stopped before it was done")
        return INTERRUPTED
    failed = [result["trial"] for result in results if result["failures"]]
    console.say(f"failed: {', '.join(failed)}" if failed else "nothing was lost")
    console.say(f"results: {options.results / 'soak.json'}")
    return 1 if failed else 0


def _run_here(options: argparse.Namespace) -> int:
    """One trial in this process. Asked to stop, it takes down what it started, once."""
    trial = next(one for one in TRIALS if one.name == options.here)
    try:
        with signals_interrupt():
            result = run_here(trial, options.count, options.seed)
    except KeyboardInterrupt:
        return INTERRUPTED
    options.results.write_text(json.dumps(result, indent=2) + "\n")
    return 0


def _count(trial: Trial, options: argparse.Namespace) -> int:
    if options.count:
        return int(options.count)
    if options.minutes and trial.unit == "seconds":
        return max(1, round(float(options.minutes) * 60))
    return max(1, round(trial.full * float(options.scale)))


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {trial.name:12} {trial.full:>5} {trial.unit:8} {trial.about}" for trial in TRIALS)
    parser = argparse.ArgumentParser(
        prog="python -m tests.load.soak",
        description=f"Try every fault at its full count.\n\ntrials:\n{listed}",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [trial.name for trial in TRIALS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="this trial; may be repeated")
    parser.add_argument("--scale", type=float, default=1.0, metavar="FACTOR", help="part of the full counts (1.0)")
    parser.add_argument("--minutes", type=float, metavar="M", help="length of the trials that are counted in seconds")
    parser.add_argument("--count", type=int, default=0, metavar="N", help="the count itself, for --only")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="what happens follows from it (0)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="trials at a time, each in a process (2)")
    parser.add_argument(
        "--results", type=Path, default=Path("soak-results"), metavar="DIR", help="where results go (soak-results)"
    )
    parser.add_argument("--here", choices=names, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
