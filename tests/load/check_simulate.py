"""Simulate the public traces: known answers, time and memory, and agreement with a real replay of 20 sessions.

The traces are no part of the project. Run it as::

    python -m tests.load.check_simulate FOLDER

``FOLDER`` is that of :mod:`tests.load.check_known_answers`. Exit status 1 when a figure differs or a bound is broken.
The replay goes over a real socket to a service with in-process tiers, on a clock that follows the trace: 20 sessions of
the coding agents at a byte a token. Some minutes, most of it the replay.
"""

import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from service.cli import console
from service.profiles import get_profile
from service.replay.replayer import ReplayOptions
from service.simulate.options import SimulateOptions
from service.simulate.simulator import simulate
from service.traces.base import TraceError
from service.traces.reader import read_trace
from tests.load.check_known_answers import KNOWN
from tests.support.service import V41
from tests.support.stage import staged

SECONDS, RESIDENT_BYTES = 60.0, 1_500_000_000
SESSIONS = 20
_AGREE = ("requests", "hit_tokens", "exact_hit_tokens", "matched_tokens", "resumes", "exact_resumes", "stored_bytes")


def check_known(folder: Path) -> bool:
    """Simulate each trace with ample lifetimes; hit rates to four digits, the agents within time and memory."""
    good = True
    for name, known in KNOWN.items():
        trace = read_trace(folder / f"{name}.jsonl.gz", strict=True)
        started = _processor_seconds()
        ample = SimulateOptions(global_ttl_seconds=1e9, state_ttl_seconds=1e9)
        result = simulate(trace, get_profile(V41).layout(trace.block_tokens), ample)
        elapsed = _processor_seconds() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        same = (result.requests, result.prompt_tokens) == known[:2] and abs(
            result.token_hit_rate - known.hit_rate
        ) < 5e-5
        same = same and elapsed < SECONDS and peak < RESIDENT_BYTES
        good = good and same
        console.say(
            f"{'ok  ' if same else 'FAIL'} {name}: {result.requests:,} requests, {result.prompt_tokens:,} tokens, hit "
            f"rate {result.token_hit_rate:.5f} (known {known.hit_rate:.5f}) in {elapsed:.1f} s of one processor, "
            f"{peak / 1e6:.0f} MB"
        )
    return good


def _processor_seconds() -> float:
    """What this process has taken so far: other work on the machine does not count."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def check_replay(folder: Path) -> bool:
    """Replay some sessions against a real service, with the defaults of the service, and simulate the same."""
    trace = read_trace(folder / "coding-agents.jsonl.gz", sessions_limit=SESSIONS)
    with tempfile.TemporaryDirectory() as directory, staged(Path(directory), budget_bytes=2 << 30) as stage:
        replayed = stage.replayer(trace, options=ReplayOptions(speed=1.0)).run().document()
    layout = get_profile(V41).miniature(1).layout(trace.block_tokens)
    simulated = simulate(trace, layout, SimulateOptions()).document()
    differing = {key: (simulated[key], replayed[key]) for key in _AGREE if simulated[key] != replayed[key]}
    console.say(
        f"{'FAIL' if differing else 'ok  '} {SESSIONS} sessions, simulated and replayed: {simulated['resumes']}"
    )
    for key, (one, other) in differing.items():
        console.say(f"     {key}: simulated {one}, replayed {other}")
    return not differing


def main(arguments: Sequence[str]) -> int:
    """The command; see the module."""
    if len(arguments) != 1:
        console.warn("usage: python -m tests.load.check_simulate FOLDER")
        return 2
    try:
        known, replay = check_known(Path(arguments[0])), check_replay(Path(arguments[0]))
    except TraceError as error:
        console.warn(str(error))
        return 1
    return 0 if known and replay else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
