"""``kvshelf demo``: a service on loopback, the shipped agent trace replayed against it, the hit table, and an end."""

import argparse
import os
import tempfile
import threading
from pathlib import Path

from kvshelf_client.client import Client
from kvshelf_client.errors import KvshelfError
from service.cli import console
from service.cli.child import INTERRUPTED, ServerProcess, signals_interrupt
from service.cli.errors import CommandError
from service.cli.numbers import count, number_from
from service.cli.progress import Progress
from service.cli.replay_text import describe, summary
from service.replay.errors import ReplayError
from service.replay.replayer import Replayer, ReplayOptions
from service.replay.tally import Tally
from service.replay.target import Target
from service.traces.base import Trace, TraceRequest
from service.traces.generate import sample_path
from service.traces.reader import read_trace
from storage.clock import SystemClock

PROFILE = "deepseek-v4.1-flash/fp4"
GLOBAL_TTL_SECONDS, STATE_TTL_SECONDS = 72 * 3600.0, 300.0
CALL_SECONDS = 30.0

_EXAMPLES = """examples:
  kvshelf demo                a minute or so, then it ends by itself
  kvshelf demo --speed 600    quicker, with lifetimes that much shorter
  kvshelf demo --keep         leave the service up afterwards, to look around, until Ctrl-C
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "demo",
        help="start a service, replay the shipped trace against it, print the hit table",
        description=(
            "Start a service on a free loopback port with embedded defaults in a temporary directory, replay the "
            "generated sample trace against it over its real API, print what it was good for, and stop it."
        ),
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--speed",
        type=number_from(1, 10_000),
        default=120.0,
        metavar="X",
        help="trace times and TTLs are divided by this (default: 120)",
    )
    parser.add_argument("--requests", type=count, metavar="N", help="only the first N requests")
    parser.add_argument("--keep", action="store_true", help="keep the service up afterwards, until Ctrl-C")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    trace = read_trace(sample_path(), requests_limit=arguments.requests)
    with signals_interrupt(), tempfile.TemporaryDirectory(prefix="kvshelf-demo-") as directory:
        try:
            with _server(Path(directory), arguments.speed) as server:
                _introduce(server.url, trace, arguments.speed)
                tally = _replay(server.url, trace, arguments.speed)
                console.say(describe(tally))
                _say_where_to_look(server.url, keep=arguments.keep)
                if arguments.keep:
                    threading.Event().wait()
        except KeyboardInterrupt:
            return 0 if arguments.keep else INTERRUPTED
        except (ReplayError, KvshelfError) as error:
            raise CommandError(str(error)) from None
    return 0


def _server(directory: Path, speed: float) -> ServerProcess:
    lifetimes = {
        "KVSHELF_STORE__TTL_SECONDS": str(GLOBAL_TTL_SECONDS / speed),
        "KVSHELF_POOL__TTL_SECONDS": str(STATE_TTL_SECONDS / speed),
        "KVSHELF_SERVER__LOG_LEVEL": "warning",
    }
    return ServerProcess(["--port", "0", "--data-dir", str(directory / "data")], environment=lifetimes)


def _introduce(url: str, trace: Trace, speed: float) -> None:
    minutes, seconds = trace.duration_seconds / 60, trace.duration_seconds / speed
    console.say(
        f"A kvshelf service runs on {url}: SSD tier in a temporary directory, DRAM pool in its process.\n"
        f"Replaying {len(trace.requests)} requests of a generated trace of coding agents, {minutes:.0f} minutes of it "
        f"in about {seconds:.0f} s.\n"
        f"Time runs {speed:g} times as fast, and so do the lifetimes: global KV lives 72 h / {speed:g} = "
        f"{GLOBAL_TTL_SECONDS / speed:.0f} s, snapshots 5 min / {speed:g} = {STATE_TTL_SECONDS / speed:.2g} s.\n"
        f"Records are miniatures of {PROFILE}, one byte a token: the plans are the real ones.\n"
        f"While it runs, its page for people: {url}/  and more: {url}/metrics  {url}/v1/stats  {url}/openapi.json\n"
    )


def _replay(url: str, trace: Trace, speed: float) -> Tally:
    clock = SystemClock()
    with Client(url, strict=True, budget_seconds=CALL_SECONDS) as client:
        target = Target(PROFILE, 1, os.urandom(8).hex())
        namespace = target.register(client, target.name_for(trace), trace)
        options = ReplayOptions(speed, run_id=os.urandom(6).hex())
        replayer = Replayer(client, namespace, trace, options, clock=clock, sleep=threading.Event().wait)
        progress = Progress("demo", clock=clock, on_terminal=console.is_terminal())

        def on_progress(request: TraceRequest) -> None:
            done = request.time_seconds / max(1.0, trace.duration_seconds)
            progress.update(done, lambda: summary(replayer.tally))

        try:
            return replayer.run(on_progress)
        finally:
            progress.clear()


def _say_where_to_look(url: str, *, keep: bool) -> None:
    console.say(
        "\nHow to read it: of the prompt's tokens, `ssd` were loaded and not run, `replay` were run again because the "
        "snapshot had expired,\nand `prefill` were new. Where to look next:\n"
        "  kvshelf serve                  run a service of your own\n"
        "  kvshelf replay sample          replay this trace, or one of yours, against it\n"
        "  kvshelf resume --help          ask the planner what an engine should do\n"
        "  README.md, docs/               how it works and how to configure it"
    )
    if keep:
        console.say(
            f"\nThe service stays up: {url}/  {url}/metrics  {url}/v1/stats  {url}/openapi.json  (Ctrl-C ends it)"
        )
