"""``kvshelf``: parse the command line and hand over to the command's module."""

import argparse
import sys
from collections.abc import Callable, Sequence

from service.cli import console
from service.cli.errors import CommandError, UsageError


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
        epilog="Each command has its own help with examples: kvshelf COMMAND --help",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add_parser in _commands():
        add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status: 0 done, 1 it failed, 2 it was asked wrongly, 130 interrupted."""
    parsed = build_parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = parsed.run
    try:
        return run(parsed)
    except UsageError as error:
        console.warn(f"kvshelf {parsed.command}: {error}")
        return 2
    except CommandError as error:
        console.warn(f"kvshelf {parsed.command}: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    except console.OutputClosedError:
        return 0


if __name__ == "__main__":
    sys.exit(main())
