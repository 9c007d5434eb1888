"""Run trials in processes of their own, several at a time, and gather their results."""

import faulthandler
import json
import subprocess
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from service.cli import console
from storage.clock import SystemClock
from tests.load.soak.base import STALL_SECONDS, Summary, Trial

TELL_SECONDS = 15.0
"""How often a trial says how far it is."""

Result = dict[str, Any]
"""One trial's result as JSON."""


def run_here(trial: Trial, count: int, seed: int) -> Result:
    """Run a trial in this process, which ends with a traceback of all threads when the trial hangs."""
    clock = SystemClock()
    started = told_at = clock.monotonic()

    def progress(done: int, words: str) -> None:
        nonlocal told_at
        faulthandler.dump_traceback_later(STALL_SECONDS, exit=True)
        if clock.monotonic() - told_at >= TELL_SECONDS:
            told_at = clock.monotonic()
            console.warn(f"{trial.name}: {done} of {count} {trial.unit}, {told_at - started:.0f} s: {words}")

    progress(0, "started")
    try:
        summary = trial.run(count, seed, progress)
    except Exception:  # noqa: BLE001 - whatever ended the trial is its result.
        summary = Summary(failures=[traceback.format_exc()])
    faulthandler.cancel_dump_traceback_later()
    return {
        "trial": trial.name,
        "about": trial.about,
        "count": count,
        "unit": trial.unit,
        "seed": seed,
        "seconds": round(clock.monotonic() - started, 1),
        "tried": dict(sorted(summary.tried.items())),
        "figures": summary.figures,
        "failures": summary.failures,
    }


def run_all(counts: Sequence[tuple[Trial, int]], seed: int, jobs: int, results: Path) -> list[Result]:
    """Run each trial with its count in a process of its own, ``jobs`` at a time, the first ones first.

    Every result is written to ``results/NAME.json`` as it comes, and all of them to ``results/soak.json``.
    """
    results.mkdir(parents=True, exist_ok=True)

    def run(one: tuple[Trial, int]) -> Result:
        result = _run_apart(*one, seed, results / f"{one[0].name}.json")
        console.warn(text_of(result))
        return result

    with ThreadPoolExecutor(jobs) as pool:
        gathered = list(pool.map(run, counts))
    (results / "soak.json").write_text(json.dumps(gathered, indent=2) + "\n")
    return gathered


def _run_apart(trial: Trial, count: int, seed: int, path: Path) -> Result:
    command = [sys.executable, "-m", "tests.load.soak", "--here", trial.name, "--count", str(count)]
    path.unlink(missing_ok=True)
    status = subprocess.run([*command, "--seed", str(seed), "--results", str(path)], check=False).returncode
    if path.exists():
        result: Result = json.loads(path.read_text())
        return result
    why = f"it ended with status {status} and no result: it hung, or was killed; see above"
    return {"trial": trial.name, "count": count, "unit": trial.unit, "seed": seed, "failures": [why]}


def text_of(result: Result) -> str:
    """A result as people read it."""
    verdict = "FAILED" if result["failures"] else "nothing lost"
    lines = [
        f"== {result['trial']}: {verdict}. {result['count']} {result['unit']}, seed {result['seed']}, "
        f"{result.get('seconds', '?')} s"
    ]
    lines += [f"   {name}: {value:,}" for name, value in result.get("tried", {}).items()]
    lines += [f"   {name}: {value:,.4g}" for name, value in result.get("figures", {}).items()]
    lines += [f"   FAILED: {failure}" for failure in result["failures"]]
    return "\n".join(lines)
