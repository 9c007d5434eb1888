"""``kvshelf replay``: drive a service with a request trace and say what it was good for."""

import argparse
import json
import os
import threading
from pathlib import Path
from typing import NamedTuple

from kvshelf_client.answers import Namespace
from kvshelf_client.client import Client
from kvshelf_client.errors import KvshelfError, ServiceError
from service.cli import console
from service.cli.admin import call
from service.cli.errors import CommandError, UsageError
from service.cli.numbers import bytes_per_token, count, number_from
from service.cli.options import add_client_options, client_options
from service.cli.progress import Progress
from service.cli.replay_text import describe, summary
from service.cli.trace_input import FORMATS_HELP, add_trace_options, read_input
from service.profiles import ProfileError, load_profile_file
from service.replay.errors import ReplayError
from service.replay.replayer import Replayer, ReplayOptions
from service.replay.target import Target
from service.traces.base import Trace, TraceRequest
from storage.clock import Clock, SystemClock

DEFAULT_URL = "http://127.0.0.1:8710"
DEFAULT_PROFILE = "deepseek-v4.1-flash/fp4"
INTERRUPTED = 130

_DESCRIPTION = """Replay a trace against a service, request by request in order of time: plan, fetch and check every
byte, store what a real engine would have computed. Records are made small by default (--bytes-per-token), so
that plans and hits are the real ones and the bytes are not. Ends with tables, or with JSON.
"""
_EXAMPLES = """examples:
  kvshelf replay sample                                        the generated sample that comes with kvshelf
  kvshelf replay agents.jsonl.gz --sessions 20 --json
  kvshelf replay chat.jsonl --requests 2000 --profile llama-3-8b/bf16
  kvshelf replay sample --speed 60 --bytes-per-token full      an hour a minute, records of real size

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
    parser.add_argument(
        "--speed",
        type=number_from(0.001, 1e6, or_zero=True),
        default=0.0,
        metavar="X",
        help="follow the trace's times divided by X; 0 as fast as it goes (default: 0)",
    )
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
    parser.set_defaults(run=run)


class _Ended(NamedTuple):
    """How a replay ended: the exit status, and what to say about it."""

    status: int
    text: str = ""


def run(arguments: argparse.Namespace) -> int:
    """Replay a trace; see the module and the command's help."""
    trace = read_input(arguments)
    target = Target(_profile(arguments.profile), arguments.bytes_per_token, _salt(arguments), arguments.shards)
    clock = SystemClock()
    with _client(arguments) as client:
        namespace = _register(client, arguments.namespace or target.name_for(trace), target, trace)
        options = ReplayOptions(arguments.speed, not arguments.relaxed, run_id=os.urandom(6).hex())
        replayer = Replayer(client, namespace, trace, options, clock=clock, sleep=threading.Event().wait)
        ended = _replay(replayer, trace, clock, by_time=arguments.speed > 0)
    if arguments.namespace is None and arguments.salt is None and not arguments.keep:
        _clean_up(arguments.url, namespace.name)
    _report(arguments, replayer, trace, namespace, target, ended)
    return ended.status


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


def _client(arguments: argparse.Namespace) -> Client:
    try:
        return Client(arguments.url, **client_options(arguments, arguments.timeout))
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from None


def _register(client: Client, name: str, target: Target, trace: Trace) -> Namespace:
    try:
        return target.register(client, name, trace)
    except ServiceError as error:
        if error.status in (409, 422):
            raise UsageError(f"the service refuses the namespace {name}: {error}") from None
        raise CommandError(str(error)) from None
    except KvshelfError as error:
        raise CommandError(str(error)) from None


def _replay(replayer: Replayer, trace: Trace, clock: Clock, *, by_time: bool) -> _Ended:
    progress = Progress("replay", clock=clock, on_terminal=console.is_terminal())
    all_tokens, all_seconds = trace.input_tokens, trace.duration_seconds

    def on_progress(request: TraceRequest) -> None:
        done = request.time_seconds / all_seconds if by_time and all_seconds else tally.prompt_tokens / all_tokens
        progress.update(done, lambda: summary(tally))

    tally = replayer.tally
    try:
        replayer.run(on_progress)
    except KeyboardInterrupt:
        return _Ended(INTERRUPTED, "interrupted; this is what there was until then")
    except (ReplayError, KvshelfError) as error:
        return _Ended(1, f"stopped: {error}")
    finally:
        progress.clear()
    return _Ended(0)


def _clean_up(url: str, namespace: str) -> None:
    """Have the service erase and forget a namespace that nobody will ask for again. It does so by itself."""
    try:
        call(url, "POST", "/v1/erasures", {"namespace": namespace, "forget_namespaces": True, "wipe": False})
    except (CommandError, UsageError) as error:
        console.warn(f"the namespace {namespace} stays: {error}")


def _report(
    arguments: argparse.Namespace, replayer: Replayer, trace: Trace, namespace: Namespace, target: Target, ended: _Ended
) -> None:
    """Print the result; what went wrong goes to standard error, after it."""
    if arguments.json:
        about = {
            "trace": trace.name,
            "namespace": namespace.name,
            "salt": target.salt,
            "complete": ended.status == 0,
            "bad_lines": trace.bad_lines,
            "generated": trace.generated is not None,
        }
        console.say(json.dumps({**replayer.tally.document(), **about}, indent=2))
    else:
        tally, made_up = replayer.tally, ", generated" if trace.generated is not None else ""
        console.say(
            f"{tally.requests:,} of {len(trace.requests):,} requests of {trace.name} ({trace.format}{made_up}, blocks "
            f"of {trace.block_tokens} tokens) in {tally.elapsed_seconds:.1f} s, namespace {namespace.name}\n"
        )
        console.say(describe(tally))
    if ended.text:
        console.warn(f"kvshelf replay: {ended.text}")
