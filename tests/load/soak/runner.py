"""Run trials in processes of their own, several at a time, and gather their results."""

import faulthandler
import json
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from service.cli import console
from service.cli.child import signals_interrupt
from storage.clock import SystemClock
from tests.load.soak.base import STALL_SECONDS, Summary, Trial
from tests.load.soak.orphans import Orphans

TELL_SECONDS = 15.0
"""How often a trial says how far it is."""
STOP_SECONDS = 60.0
"""How long a trial that is stopped has to take down what it started."""
_POLL_SECONDS = 0.1

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


class _Running(NamedTuple):
    """A trial under way in a process of its own."""

    trial: Trial
    number: int
    process: subprocess.Popen[bytes]


def run_all(counts: Sequence[tuple[Trial, int]], seed: int, jobs: int, results: Path) -> list[Result]:
    """Run each trial with its count in a process of its own, ``jobs`` at a time, the first ones first.

    Every result is written to ``results/NAME.json`` as it comes; ``results/soak.json`` has the latest of each trial.
    SIGINT, SIGTERM and SIGHUP stop all of them, and leave no process behind.

    Raises:
        KeyboardInterrupt: it was stopped.
    """
    results.mkdir(parents=True, exist_ok=True)
    waiting, running, pause = list(counts), list[_Running](), threading.Event()
    gathered: dict[str, Result] = {}
    with Orphans() as orphans, signals_interrupt():
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    running.append(_start(*waiting.pop(0), seed, results))
                for one in [one for one in running if one.process.poll() is not None]:
                    running.remove(one)
                    left = orphans.end({other.process.pid for other in running})
                    gathered[one.trial.name] = result = _result_of(one, seed, results, left)
                    console.warn(text_of(result))
                pause.wait(_POLL_SECONDS)
        finally:
            _stop(running)
    return [gathered[trial.name] for trial, _ in counts]


def _start(trial: Trial, count: int, seed: int, results: Path) -> _Running:
    """In a session of its own: a Ctrl-C is for the runner, which asks each trial once."""
    command = [sys.executable, "-m", "tests.load.soak", "--here", trial.name, "--count", str(count)]
    path = _path(results, trial)
    path.unlink(missing_ok=True)
    command += ["--seed", str(seed), "--results", str(path)]
    return _Running(trial, count, subprocess.Popen(command, start_new_session=True))


def _stop(running: Sequence[_Running]) -> None:
    for one in running:
        one.process.send_signal(signal.SIGTERM)
    for one in running:
        try:
            one.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            one.process.kill()
            one.process.wait()


def _path(results: Path, trial: Trial) -> Path:
    return results / f"{trial.name}.json"


def _result_of(one: _Running, seed: int, results: Path, left_processes: int) -> Result:
    path = _path(results, one.trial)
    if path.exists():
        result: Result = json.loads(path.read_text())
    else:
        why = f"it ended with status {one.process.returncode} and no result: it hung, or was killed; see above"
        result = {"trial": one.trial.name, "count": one.number, "unit": one.trial.unit, "seed": seed, "failures": [why]}
    if left_processes:
        result["failures"].append(f"it left {left_processes} processes behind")
    path.write_text(json.dumps(result, indent=2) + "\n")
    _gather(results)
    return result


def _gather(results: Path) -> None:
    """The latest result of each trial in one file, those of runs with ``--only`` too."""
    whole = results / "soak.json"
    found = [json.loads(path.read_text()) for path in sorted(results.glob("*.json")) if path != whole]
    whole.write_text(json.dumps(found, indent=2) + "\n")


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
