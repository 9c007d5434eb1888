"""``kvshelf scrub``: have a running service read all it has stored, and see what comes of it."""

import argparse
import json
import threading
from typing import Any

from service.cli import console
from service.cli.admin import Service, service_of
from service.cli.options import add_client_options
from service.cli.progress import Progress
from service.cli.tables import size
from storage.clock import SystemClock

_EXAMPLES = """examples:
  kvshelf scrub                                  the service on this machine; waits until it is done
  kvshelf scrub http://kvshelf-0.kvshelf:8710 --no-wait
  kvshelf scrub --status                         how far it is; when the last pass ended

exit status: 0 nothing damaged, 1 damaged records were found (misses from now on) or it failed, 2 asked wrongly
"""
_POLL_SECONDS = 0.2


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "scrub",
        help="have a service read and check all it has stored",
        description="Have a running service read every block and compare it with its checksum, at the rate of"
        " scrub.bytes_per_second. It does so by itself every scrub.interval_seconds.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8710", help="the service (default: %(default)s)")
    add_client_options(parser)
    parser.add_argument("--status", action="store_true", help="begin nothing, only show how far it is")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for its end")
    parser.add_argument("--json", action="store_true", help="print what came of it as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    service = service_of(arguments)
    found = service.call("GET" if arguments.status else "POST", "/v1/scrub")
    if not arguments.status and not arguments.no_wait:
        found = _wait(service, found)
    if arguments.json:
        console.say(json.dumps(found, indent=2))
    else:
        done = f"{found['records']:,} records, {size(found['payload_bytes'])}, {found['corrupt']:,} damaged"
        console.say(f"{found['state']}, {found['progress']:.0%}: {done}")
    return 1 if found["corrupt"] else 0


def _wait(service: Service, found: dict[str, Any]) -> dict[str, Any]:
    progress = Progress("scrub", clock=SystemClock(), on_terminal=console.is_terminal())
    pause = threading.Event()
    try:
        while found["state"] == "running":
            pause.wait(_POLL_SECONDS)
            found = service.call("GET", "/v1/scrub")
            told = size(found["payload_bytes"])
            progress.update(found["progress"], lambda told=told: told)  # type: ignore[misc]
    finally:
        progress.clear()
    return found
