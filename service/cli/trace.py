"""``kvshelf trace``: make traces, and convert them."""

import argparse
from pathlib import Path

from service.cli import console
from service.cli.errors import UsageError
from service.cli.numbers import count, number_from
from service.cli.trace_input import FORMATS_HELP, add_trace_options, read_input
from service.traces.generate import GeneratorSettings, trace_bytes, write_trace
from service.traces.plain import trace_lines

_DEFAULTS = GeneratorSettings()
_EXAMPLE = """examples:
  kvshelf trace generate --seed 7 --sessions 50 --hours 8 --out agents.jsonl.gz
  kvshelf trace generate --seed 7 --sessions 200 --days 7 --out week.jsonl.gz    with returns after hours and days
  kvshelf trace convert chat.jsonl.gz --strict --out chat-kvshelf.jsonl.gz
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    trace = commands.add_parser(
        "trace",
        help="generate and convert request traces",
        description="Work with request traces. docs/trace-format.md describes the formats.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = trace.add_subparsers(dest="verb", metavar="VERB", required=True)
    _add_generate(verbs)
    _add_convert(verbs)


def _add_generate(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "generate",
        help="generate coding-agent sessions",
        description="Generate made-up coding-agent sessions. The same options make the same file.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="start of the random numbers (default: 1)")
    parser.add_argument(
        "--sessions", type=count, default=_DEFAULTS.sessions, metavar="N", help=f"default: {_DEFAULTS.sessions}"
    )
    hours = _DEFAULTS.duration_seconds / 3600
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--hours",
        type=number_from(0.01, 9000),
        default=hours,
        metavar="H",
        help=f"no request is later (default: {hours:g})",
    )
    length.add_argument(
        "--days",
        type=number_from(0.01, 366),
        metavar="D",
        help="the same in days; with more than one, sessions are taken up again hours and days later",
    )
    parser.add_argument(
        "--block-tokens", type=count, default=_DEFAULTS.block_tokens, metavar="N", help="tokens a block (default: 64)"
    )
    _add_out(parser)
    parser.set_defaults(run=run_generate)


def _add_convert(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "convert",
        help="write a trace of any known format in kvshelf's own",
        description="Write a trace of any known format in kvshelf's own.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", help=FORMATS_HELP, metavar="TRACE")
    add_trace_options(parser)
    _add_out(parser)
    parser.set_defaults(run=run_convert)


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="file to write; compressed if it ends in .gz"
    )


def run_generate(arguments: argparse.Namespace) -> int:
    """Generate a trace and write it."""
    hours = arguments.hours if arguments.days is None else arguments.days * 24
    settings = GeneratorSettings(arguments.sessions, hours * 3600, arguments.block_tokens)
    content = trace_bytes(arguments.seed, settings)
    _write(arguments.out, content)
    requests = content.count(b"\n") - 1
    console.say(f"{arguments.out}: {settings.sessions} generated sessions, {requests} requests, seed {arguments.seed}")
    return 0


def run_convert(arguments: argparse.Namespace) -> int:
    """Read a trace of any format and write it in kvshelf's own."""
    trace = read_input(arguments)
    about: dict[str, object] = {"converted_from": trace.format, "name": trace.name}
    if trace.generated is not None:
        about["generated"] = trace.generated
    _write(arguments.out, b"".join(trace_lines(trace.requests, trace.block_tokens, about)))
    console.say(
        f"{arguments.out}: {len(trace.requests)} requests, {trace.sessions} sessions, "
        f"blocks of {trace.block_tokens} tokens, from the {trace.format} format, {trace.bad_lines} bad lines"
    )
    return 0


def _write(path: Path, content: bytes) -> None:
    try:
        write_trace(path, content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
