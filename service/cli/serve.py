"""``kvshelf serve``: run the service."""

import argparse
from contextlib import suppress
from pathlib import Path

from service.cli import console
from service.cli.errors import CommandError
from service.cli.options import add_settings_options, settings_from
from service.logs import configure_logs
from service.server import serve
from storage.catalog import CatalogError
from storage.clock import SystemClock
from storage.lock import DirectoryLockedError
from storage.ssd import UnusableDirectoryError

_EXAMPLES = """examples:
  kvshelf serve                                     loopback, port 8710, pool in this process
  kvshelf serve --port 0 --data-dir /tmp/shelf      a free port, said on standard output
  kvshelf serve --grpc-port 8711                    the gRPC face, too
  kvshelf serve --redis-url redis://127.0.0.1:6379  snapshots in a Redis
  kvshelf serve --config /etc/kvshelf.toml          settings from a file; docs/configuration.md has them all
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "serve",
        help="run the service",
        description="Run the service until Ctrl-C or SIGTERM: requests under way are finished, the index is synced.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_settings_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    settings = settings_from(arguments)
    configure_logs(settings.server)
    try:
        serve(settings, SystemClock(), lambda url, grpc_url: _say_ready(url, grpc_url, settings.store.data_dir))
    except OSError as error:
        raise CommandError(error.strerror or str(error)) from None
    except (DirectoryLockedError, UnusableDirectoryError, CatalogError, ValueError) as error:
        raise CommandError(str(error)) from None
    return 0


def _say_ready(url: str, grpc_url: str | None, data_dir: Path) -> None:
    others = f"page: {url}/, metrics: {url}/metrics, health: {url}/healthz" + (
        f", gRPC: {grpc_url}" if grpc_url else ""
    )
    with suppress(console.OutputClosedError):  # It serves whether or not somebody reads this.
        console.say(f"kvshelf serves on {url} (data in {data_dir}); {others}")
