"""``kvshelf trace``: make traces."""

import argparse
from pathlib import Path

from service.cli import console
from service.cli.errors import UsageError
from service.traces.generate import GeneratorSettings, trace_bytes, write_trace

_DEFAULTS = GeneratorSettings()
_EXAMPLE = """example:
  kvshelf trace generate --seed 7 --sessions 50 --hours 8 --out agents.jsonl.gz
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    trace = commands.add_parser(
        "trace",
        help="generate request traces",
        description="Work with request traces.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = trace.add_subparsers(dest="verb", metavar="VERB", required=True)
    generate = verbs.add_parser(
        "generate",
        help="generate coding-agent sessions",
        description="Generate made-up coding-agent sessions for kvshelf replay. The same options make the same file.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    generate.add_argument("--seed", type=int, default=1, help="start of the random numbers (default: 1)")
    generate.add_argument(
        "--sessions", type=int, default=_DEFAULTS.sessions, help=f"how many (default: {_DEFAULTS.sessions})"
    )
    hours = _DEFAULTS.duration_seconds / 3600
    generate.add_argument("--hours", type=float, default=hours, help=f"no request is later (default: {hours:g})")
    generate.add_argument(
        "--block-tokens", type=int, default=_DEFAULTS.block_tokens, help=f"default: {_DEFAULTS.block_tokens}"
    )
    generate.add_argument("--out", type=Path, required=True, help="file to write; compressed if it ends in .gz")
    generate.set_defaults(run=run_generate)


def run_generate(arguments: argparse.Namespace) -> int:
    """Generate a trace and write it."""
    try:
        settings = GeneratorSettings(arguments.sessions, arguments.hours * 3600, arguments.block_tokens)
        content = trace_bytes(arguments.seed, settings)
        write_trace(arguments.out, content)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"cannot write {arguments.out}: {error.strerror}") from None
    requests = content.count(b'"in":')
    console.say(f"{arguments.out}: {settings.sessions} generated sessions, {requests} requests, seed {arguments.seed}")
    return 0
