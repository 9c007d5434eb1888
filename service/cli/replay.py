"""``kvshelf replay``: drive a service with a request trace and say what it was good for."""

import argparse
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kvshelf_client.answers import Namespace
from kvshelf_client.client import Client
from kvshelf_client.errors import KvshelfError, ServiceError
from service.cli import console
from service.cli.admin import service_of
from service.cli.errors import CommandError, UsageError
from service.cli.numbers import bytes_per_token, count, number_from, seconds
from service.cli.options import add_client_options, client_options, with_token_hint
from service.cli.progress import Progress
from service.cli.replay_report import report
from service.cli.replay_text import describe, live_summary
from service.cli.trace_input import FORMATS_HELP, add_trace_options, read_input
from service.profiles import ProfileError, load_profile_file
from service.replay.errors import ReplayError
from service.replay.replayer import Replayer, ReplayOptions
from service.replay.samples import Sample, Sampler
from service.replay.tally import Tally
from service.replay.target import Target
from service.traces.base import Trace, TraceRequest
from storage.clock import Clock, SystemClock

DEFAULT_URL = "http://127.0.0.1:8710"
DEFAULT_PROFILE = "deepseek-v4.1-flash/fp4"
INTERRUPTED = 130
OPEN_LOOP_REQUESTS = 256
MOST_SESSIONS = 1000

_DESCRIPTION = """Replay a trace against a service: plan, fetch and check every byte, store what a real engine would
have computed. One request at a time in order of the trace, or as a load test: --concurrency for many sessions at
once (closed loop), --speed for the trace's own times (open loop). Records are made small by default
(--bytes-per-token), so that plans and hits are the real ones and the bytes are not. Ends with tables, or with
JSON. See docs/load-test.md.
"""
_EXAMPLES = """examples:
  kvshelf replay sample                                        the generated sample that comes with kvshelf
  kvshelf replay agents.jsonl.gz --sessions 20 --json
  kvshelf replay chat.jsonl --requests 2000 --profile llama-3-8b/bf16
  kvshelf replay sample --speed 60 --bytes-per-token full      an hour a minute, records of real size
  kvshelf replay agents.jsonl.gz --concurrency 100 --duration 10m --warmup 1m --report load.html

exit status: 0 done, 1 the service failed or handed out a wrong byte, 2 asked wrongly, 130 interrupted
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "replay",
        help="replay a request trace against a service",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", help=FORMATS_HELP, metavar="TRACE")
    parser.add_argument("--url", default=DEFAULT_URL, help=f"the service (default: {DEFAULT_URL})")
    add_client_options(parser)
    parser.add_argument("--profile", default=DEFAULT_PROFILE, help=f"id, or a .toml file (default: {DEFAULT_PROFILE})")
    parser.add_argument(
        "--bytes-per-token",
        type=bytes_per_token,
        default=1,
        metavar="N",
        help="make records this small; `full` or 0 for the profile's real sizes (default: 1)",
    )
    add_trace_options(parser)
    _add_load_options(parser)
    parser.add_argument("--shards", type=count, default=1, metavar="N", help="tensor-parallel ranks (default: 1)")
    parser.add_argument(
        "--namespace", metavar="NAME", help="namespace to replay in (default: named after the settings)"
    )
    parser.add_argument(
        "--salt",
        help="replays with the same salt find each other's records (default: a fresh one, so that it starts cold; "
        "with --namespace none, so that it finds what was there)",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="leave the records of a replay that named neither --namespace nor --salt; by default they are erased",
    )
    parser.add_argument("--relaxed", action="store_true", help="do not wait for the disk when storing")
    parser.add_argument(
        "--timeout", type=number_from(0.001, 86_400), default=30.0, metavar="S", help="seconds per call (default: 30)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write a page with plots")
    parser.set_defaults(run=run)


def _add_load_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    text = "open loop: start requests at the trace's times divided by X; 0 as fast as it goes (default: 0)"
    add("--speed", type=number_from(0.001, 1e6, or_zero=True), default=0.0, metavar="X", help=text)
    text = (
        "sessions at once, each as fast as it goes, with their sub-agents; with --speed, most requests at once "
        f"(default: 1, which is one request after the other; with --speed {OPEN_LOOP_REQUESTS})"
    )
    add("--concurrency", type=count, metavar="N", help=text)
    text = "start nothing after so long; a trace that is over before begins anew, as other sessions (default: once)"
    add("--duration", type=seconds, metavar="T", help=text)
    add("--warmup", type=seconds, default=0.0, metavar="T", help="leave what starts before out of the figures")


class _Ended(NamedTuple):
    """How a replay ended: the exit status, and what to say about it."""

    status: int
    text: str = ""


def run(arguments: argparse.Namespace) -> int:
    """Replay a trace; see the module and the command's help."""
    if arguments.report is not None and not arguments.report.parent.is_dir():
        raise UsageError(f"cannot write {arguments.report}: there is no such directory")
    trace = read_input(arguments)
    target = Target(_profile(arguments.profile), arguments.bytes_per_token, _salt(arguments), arguments.shards)
    options, clock = _options(arguments), SystemClock()
    with _client(arguments, options) as client, _client(arguments, None) as aside:
        namespace = _register(client, arguments.namespace or target.name_for(trace), target, trace)
        replayer = Replayer(client, namespace, trace, options, clock=clock, sleep=threading.Event().wait)
        with Sampler(aside, clock) as sampler:
            ended = _replay(replayer, trace, options, clock)
    if arguments.namespace is None and arguments.salt is None and not arguments.keep:
        _clean_up(arguments, namespace.name)
    made = _Made(trace, options, namespace, target, ended)
    _print(made, replayer, as_json=arguments.json)
    if arguments.report is not None:
        _write_report(arguments.report, made, replayer, sampler.samples)
    if ended.text:
        console.warn(f"kvshelf replay: {ended.text}")
    return ended.status


def _options(arguments: argparse.Namespace) -> ReplayOptions:
    concurrency = arguments.concurrency or (OPEN_LOOP_REQUESTS if arguments.speed else 1)
    if concurrency > MOST_SESSIONS:
        raise UsageError(f"--concurrency is at most {MOST_SESSIONS}: each has a thread")
    return ReplayOptions(
        speed=arguments.speed,
        concurrency=concurrency,
        duration_seconds=arguments.duration,
        warmup_seconds=arguments.warmup,
        durable=not arguments.relaxed,
        run_id=os.urandom(6).hex(),
    )


def _profile(text: str) -> str | dict[str, object]:
    if not text.endswith(".toml"):
        return text
    try:
        return load_profile_file(Path(text)).document()
    except (OSError, ProfileError) as error:
        raise UsageError(f"cannot use the profile {text}: {error}") from None


def _salt(arguments: argparse.Namespace) -> str:
    """A chosen namespace is meant to be found again, so it has no salt unless one is given."""
    if arguments.salt is not None:
        return str(arguments.salt)
    return "" if arguments.namespace else os.urandom(8).hex()


def _client(arguments: argparse.Namespace, options: ReplayOptions | None) -> Client:
    """A client for so many requests at once; without options one to look at the service with, which never raises."""
    try:
        client = client_options(arguments, arguments.timeout)
        client["strict"] = options is not None
        client["max_connections"] = 1 if options is None else options.requests_at_once
        return Client(arguments.url, **client)
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from None


def _register(client: Client, name: str, target: Target, trace: Trace) -> Namespace:
    try:
        return target.register(client, name, trace)
    except ServiceError as error:
        if error.status in (409, 422):
            raise UsageError(f"the service refuses the namespace {name}: {error}") from None
        kind = UsageError if error.status in (401, 403) else CommandError
        raise kind(with_token_hint(error.status, str(error))) from None
    except KvshelfError as error:
        raise CommandError(str(error)) from None


def _replay(replayer: Replayer, trace: Trace, options: ReplayOptions, clock: Clock) -> _Ended:
    progress = Progress("replay", clock=clock, on_terminal=console.is_terminal())
    all_tokens, all_seconds, started = trace.input_tokens, trace.duration_seconds, clock.monotonic()
    seen_tokens = 0

    def on_progress(request: TraceRequest) -> None:
        """Say how far it is: by the time it is given, by the clock of the trace, or else by tokens."""
        nonlocal seen_tokens
        seen_tokens += request.input_tokens
        done = seen_tokens / all_tokens
        if options.duration_seconds is not None:
            done = (clock.monotonic() - started) / options.duration_seconds
        elif options.speed and all_seconds:
            done = request.time_seconds / all_seconds
        progress.update(min(1.0, done), lambda: live_summary(replayer, started, clock.monotonic()))

    try:
        replayer.run(on_progress)
    except KeyboardInterrupt:
        return _Ended(INTERRUPTED, "interrupted; this is what there was until then")
    except (ReplayError, KvshelfError) as error:
        return _Ended(1, f"stopped: {error}")
    finally:
        progress.clear()
    return _Ended(0)


def _clean_up(arguments: argparse.Namespace, namespace: str) -> None:
    """Have the service erase and forget a namespace that nobody will ask for again. It does so by itself."""
    try:
        body = {"namespace": namespace, "forget_namespaces": True, "wipe": False}
        service_of(arguments).call("POST", "/v1/erasures", body)
    except (CommandError, UsageError) as error:
        console.warn(f"the namespace {namespace} stays: {error}")


@dataclass(frozen=True)
class _Made:
    """A replay that is over: what was asked, and how it ended."""

    trace: Trace
    options: ReplayOptions
    namespace: Namespace
    target: Target
    ended: _Ended

    def title(self, tally: Tally, warmup: Tally) -> str:
        """One line for people."""
        trace, made_up = self.trace, ", generated" if self.trace.generated is not None else ""
        of = "" if self.options.duration_seconds else f" of {len(trace.requests):,}"
        left_out = f" and {warmup.requests:,} to warm up" if self.options.warmup_seconds else ""
        return (
            f"{tally.requests:,}{of} requests{left_out} of {trace.name} ({trace.format}{made_up}, blocks of "
            f"{trace.block_tokens} tokens) in {tally.elapsed_seconds:.1f} s, namespace {self.namespace.name}"
        )

    def document(self) -> dict[str, object]:
        """What goes into the JSON beside the figures."""
        options = self.options
        return {
            "trace": self.trace.name,
            "namespace": self.namespace.name,
            "salt": self.target.salt,
            "complete": self.ended.status == 0,
            "bad_lines": self.trace.bad_lines,
            "generated": self.trace.generated is not None,
            "loop": "open" if options.speed else "closed",
            "speed": options.speed,
            "concurrency": options.concurrency,
            "duration_seconds": options.duration_seconds,
            "warmup_seconds": options.warmup_seconds,
        }


def _print(made: _Made, replayer: Replayer, *, as_json: bool) -> None:
    tally, warmup = replayer.tally, replayer.warmup
    if as_json:
        document = {**tally.document(), **made.document(), "warmup_requests": warmup.requests}
        console.say(json.dumps(document, indent=2))
    else:
        console.say(f"{made.title(tally, warmup)}\n")
        console.say(describe(tally))


def _write_report(path: Path, made: _Made, replayer: Replayer, samples: Sequence[Sample]) -> None:
    about = {name.replace("_", " "): str(value) for name, value in made.document().items() if value is not None}
    title = f"Replay of {made.trace.name}"
    text = f"{made.title(replayer.tally, replayer.warmup)}. {made.ended.text}".rstrip(". ")
    page = report(title, text, about, replayer, samples)
    try:
        path.write_text(page, "utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
