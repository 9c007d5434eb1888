"""``kvshelf``: parse the command line and hand over to the command's module."""

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence

from service.cli import console
from service.cli.errors import CommandError, UsageError
from service.version import __version__

_EXAMPLES = """examples:
  kvshelf demo                     see it work: a service, a replayed trace, the hit table
  kvshelf serve --data-dir shelf   run a service
  kvshelf replay sample            replay the sample trace against it
  kvshelf simulate sample          what shelves of other sizes would make of it
  kvshelf size sample              how much SSD and DRAM such a load needs

Each command has its own help with examples: kvshelf COMMAND --help
"""


COMMANDS = (
    "demo", "serve", "health", "doctor", "replay", "simulate", "size", "resume", "profile", "trace", "config",
    "token", "erase", "scrub", "verify",
)  # fmt: skip
"""One module of this package each, in the order the help lists them. Each has ``add_parser``."""


def build_parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The command line with the named commands."""
    parser = argparse.ArgumentParser(
        prog="kvshelf",
        description="Tiered KV-cache persistence for LLM inference servers.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kvshelf {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in names:
        importlib.import_module(f"service.cli.{name}").add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status: 0 done, 1 it failed, 2 it was asked wrongly, 130 interrupted."""
    name = "kvshelf"
    words = sys.argv[1:] if arguments is None else arguments
    try:
        # Only the command that is run is imported: a plan on the command line need not wait for the web server.
        parser = build_parser(words[:1] if words and words[0] in COMMANDS else COMMANDS)
        parsed = parser.parse_args(words)
        if parsed.command is None:
            console.warn(parser.format_help().rstrip())
            return 2
        name = f"kvshelf {parsed.command}"
        run: Callable[[argparse.Namespace], int] = parsed.run
        return run(parsed)
    except UsageError as error:
        console.warn(f"{name}: {error}")
        return 2
    except CommandError as error:
        console.warn(f"{name}: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    except console.OutputClosedError:
        return 0


if __name__ == "__main__":
    sys.exit(main())
