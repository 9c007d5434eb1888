"""``kvshelf simulate``: what shelves of given sizes and lifetimes would make of a trace, without a service."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.cli import console
from service.cli.errors import UsageError
from service.cli.numbers import byte_count, bytes_per_token, seconds
from service.cli.profile import named_profile
from service.cli.progress import Progress
from service.cli.resume import abilities
from service.cli.simulate_plot import sweep_svg
from service.cli.simulate_text import describe, describe_sweep
from service.cli.tables import share
from service.cli.trace_input import FORMATS_HELP, add_trace_options, read_input
from service.planner.base import Ability, Layout, ResumePlan
from service.profiles import ProfileError
from service.simulate.options import SimulateOptions
from service.simulate.policy import NAMES, SnapshotPolicy, policy_named
from service.simulate.simulator import simulate
from service.simulate.sweep import Sweep, run_sweep
from service.traces.base import Trace, TraceRequest
from storage.clock import SystemClock

DEFAULT_PROFILE = "deepseek-v4.1-flash/fp4"

_DESCRIPTION = """Play a trace on a virtual clock against models of the two shelves, with the service's own planner:
hits, how requests resume, bytes stored and written. A request takes no time. docs/simulate.md says
what is simplified, and where it agrees with a real replay to the token.
"""
_EXAMPLES = """examples:
  kvshelf simulate sample
  kvshelf simulate agents.jsonl.gz --state-ttl 5m --ssd-bytes 2TB --dram-bytes 64GiB --json
  kvshelf simulate agents.jsonl.gz --sweep state-ttl=1m,5m,10m,30m --plot state-ttl.svg
  kvshelf simulate agents.jsonl.gz --sweep snapshots=last-block,prompt-and-turn,every-16,none
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "simulate",
        help="simulate a trace under given budgets and lifetimes",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("trace", help=FORMATS_HELP, metavar="TRACE")
    add("--profile", default=DEFAULT_PROFILE, help=f"id, or a .toml file (default: {DEFAULT_PROFILE})")
    text = "make records this small, as in a replay; `full` or 0 for the profile's real sizes (default: full)"
    add("--bytes-per-token", type=bytes_per_token, metavar="N", help=text)
    add_trace_options(parser)
    add(
        "--global-ttl",
        type=seconds,
        default="72h",
        metavar="T",
        help="life of global KV after its last use (default: 72h)",
    )
    add(
        "--state-ttl",
        type=seconds,
        default="5m",
        metavar="T",
        help="life of a snapshot after its last use (default: 5m)",
    )
    add("--ssd-bytes", type=byte_count, metavar="B", help="budget of the SSD tier (default: none)")
    add("--dram-bytes", type=byte_count, metavar="B", help="budget of the DRAM pool (default: none)")
    text = f"which snapshots are stored: {NAMES} (default: last-block)"
    add("--snapshots", type=snapshot_policy, default="last-block", metavar="POLICY", help=text)
    text = "a snapshot does not take the place of the one before it in its session"
    add("--no-supersede", dest="supersede", action="store_false", help=text)
    text = "the SSD tier drops all of a segment that it takes back, also what is in use"
    add("--no-carry-forward", dest="carry_forward", action="store_false", help=text)
    add("--exact-only", action="store_true", help="allow nothing that is not bit-identical to a full prefill")
    text = f"what the engines can do, as a list of {', '.join(Ability)} (default: the profile's)"
    add("--supports", type=abilities, metavar="A,..", help=text)
    text = f"simulate each value of one option: {', '.join(_SWEPT)}"
    add("--sweep", type=_sweep, metavar="OPTION=V,..", help=text)
    add("--plot", type=Path, metavar="FILE.svg", help="draw the sweep")
    add("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Simulate and print; see the command's help."""
    if arguments.plot is not None and arguments.sweep is None:
        raise UsageError("--plot draws a sweep: name one with --sweep")
    trace = read_input(arguments)
    layout = _layout(arguments, trace)
    options = SimulateOptions(
        global_ttl_seconds=arguments.global_ttl,
        state_ttl_seconds=arguments.state_ttl,
        ssd_bytes=arguments.ssd_bytes,
        dram_bytes=arguments.dram_bytes,
        snapshots=arguments.snapshots,
        supersede=arguments.supersede,
        carry_forward=arguments.carry_forward,
        exact_only=arguments.exact_only,
        supports=arguments.supports,
    )
    try:
        if arguments.sweep is None:
            _run_one(arguments, trace, layout, options)
        else:
            _run_sweep(arguments, trace, layout, options, arguments.sweep)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return 0


def _run_one(arguments: argparse.Namespace, trace: Trace, layout: Layout, options: SimulateOptions) -> None:
    progress = _Shown(trace, 1)
    result = simulate(trace, layout, options, lambda request, plan: progress.show(0, request, plan))
    progress.clear()
    if arguments.json:
        console.say(json.dumps({**result.document(), **_about(arguments, trace)}, indent=2))
    else:
        console.say(f"{_title(arguments, trace)}\n")
        console.say(describe(result))


def _run_sweep(
    arguments: argparse.Namespace, trace: Trace, layout: Layout, options: SimulateOptions, sweep: Sweep
) -> None:
    progress = _Shown(trace, len(sweep.values))
    steps = run_sweep(trace, layout, options, sweep, progress.show)
    progress.clear()
    if arguments.plot is not None:
        try:
            arguments.plot.write_text(sweep_svg(_title(arguments, trace), f"--{sweep.option}", steps), "utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {arguments.plot}: {error.strerror}") from None
    if arguments.json:
        results = [{sweep.option: step.value, **step.result.document()} for step in steps]
        console.say(json.dumps({"sweep": sweep.option, "results": results, **_about(arguments, trace)}, indent=2))
    else:
        console.say(f"{_title(arguments, trace)}\n")
        console.say(describe_sweep(sweep.option, steps))


class _Shown:
    """Progress over one or several simulations of a trace."""

    def __init__(self, trace: Trace, runs: int) -> None:
        self._progress = Progress("simulate", clock=SystemClock(), on_terminal=console.is_terminal())
        self._all, self._runs = trace.input_tokens, runs
        self._seen, self._saved = 0, 0

    def show(self, runs_done: int, request: TraceRequest, plan: ResumePlan) -> None:
        """A request was played."""
        self._seen += request.input_tokens
        self._saved += plan.saved_tokens
        total = self._all * self._runs
        text = f"run {runs_done + 1} of {self._runs}, "
        self._progress.update(self._seen / total, lambda: f"{text}{share(self._saved, self._seen)} of tokens saved")

    def clear(self) -> None:
        """All is played."""
        self._progress.clear()


def _layout(arguments: argparse.Namespace, trace: Trace) -> Layout:
    profile = named_profile(arguments.profile)
    try:
        if arguments.bytes_per_token is not None:
            profile = profile.miniature(arguments.bytes_per_token)
        return profile.layout(trace.block_tokens)
    except ProfileError as error:
        raise UsageError(str(error)) from None


def _title(arguments: argparse.Namespace, trace: Trace) -> str:
    made_up = ", generated" if trace.generated is not None else ""
    return (
        f"{trace.name} ({trace.format}{made_up}): {len(trace.requests):,} requests, {trace.sessions:,} sessions, "
        f"blocks of {trace.block_tokens} tokens; {arguments.profile}"
    )


def _about(arguments: argparse.Namespace, trace: Trace) -> dict[str, object]:
    return {
        "trace": trace.name,
        "format": trace.format,
        "generated": trace.generated is not None,
        "profile": arguments.profile,
        "bad_lines": trace.bad_lines,
    }


def snapshot_policy(text: str) -> SnapshotPolicy:
    """The policy of a name; raises ArgumentTypeError."""
    try:
        return policy_named(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


_SWEPT: dict[str, tuple[str, Callable[[str], Any]]] = {
    "global-ttl": ("global_ttl_seconds", seconds),
    "state-ttl": ("state_ttl_seconds", seconds),
    "ssd-bytes": ("ssd_bytes", byte_count),
    "dram-bytes": ("dram_bytes", byte_count),
    "snapshots": ("snapshots", snapshot_policy),
}
"""What can be swept: the field of the options, and how its values are read."""


def _sweep(text: str) -> Sweep:
    option, _, values = text.partition("=")
    if option not in _SWEPT or not values:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not OPTION=V,V,.. of {', '.join(_SWEPT)}")
    field, read = _SWEPT[option]
    return Sweep(option, field, [(value, read(value)) for value in values.split(",")])
