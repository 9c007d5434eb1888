"""``kvshelf``: parse the command line and hand over to the command's module."""

import argparse
import sys
from collections.abc import Callable, Sequence

from service.cli import console
from service.cli.errors import CommandError, UsageError
from service.version import __version__

_EXAMPLES = """examples:
  kvshelf demo                     see it work: a service, a replayed trace, the hit table
  kvshelf serve --data-dir shelf   run a service
  kvshelf replay sample            replay the sample trace against it

Each command has its own help with examples: kvshelf COMMAND --help
"""


def _commands() -> "Sequence[Callable[[argparse._SubParsersAction[argparse.ArgumentParser]], None]]":
    """One ``add_parser`` a command, in the order the help lists them. Imported here to keep ``--help`` quick."""
    from service.cli import config, demo, profile, replay, resume, serve, trace

    return (
        demo.add_parser,
        serve.add_parser,
        replay.add_parser,
        resume.add_parser,
        profile.add_parser,
        trace.add_parser,
        config.add_parser,
    )


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="kvshelf",
        description="Tiered KV-cache persistence for LLM inference servers.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kvshelf {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for add_parser in _commands():
        add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status: 0 done, 1 it failed, 2 it was asked wrongly, 130 interrupted."""
    name = "kvshelf"
    try:
        parser = build_parser()
        parsed = parser.parse_args(arguments)
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
