"""``kvshelf health``: ask a service how it is, for health checks of containers and for scripts."""

import argparse
import json

from kvshelf_client.client import Client
from kvshelf_client.errors import KvshelfError
from service.cli import console
from service.cli.errors import CommandError

_TIMEOUT_SECONDS = 2.0
_EXAMPLES = """examples:
  kvshelf health                                 the service on this machine
  kvshelf health http://kvshelf-0.kvshelf:8710   another one
  kvshelf health --strict                        fail when it is degraded, too

exit status: 0 it serves (degraded too, unless --strict), 1 it does not answer or is not healthy enough
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "health",
        help="ask a service how it is",
        description="Ask a service for its health. It needs no token.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8710", help="the service (default: %(default)s)")
    parser.add_argument("--strict", action="store_true", help="a degraded service is a failure")
    parser.add_argument("--json", action="store_true", help="print status and causes as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    try:
        with Client(arguments.url, strict=True, budget_seconds=_TIMEOUT_SECONDS) as client:
            health = client.health()
    except ValueError as error:
        raise CommandError(str(error)) from None
    except KvshelfError as error:
        raise CommandError(f"{error}; is the service running there?") from None
    if arguments.json:
        console.say(json.dumps({"status": health.status, "causes": health.causes}))
    else:
        console.say("; ".join([health.status, *health.causes]))
    return int(health.status != "ok" if arguments.strict else health.status not in ("ok", "degraded"))
