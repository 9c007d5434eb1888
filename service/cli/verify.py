"""``kvshelf verify``: look at a data directory that no service has open, and change nothing."""

import argparse
import json
from pathlib import Path

from service.cli import console
from service.cli.errors import UsageError
from service.cli.progress import Progress
from service.cli.tables import size
from storage.catalog import CatalogError, read_document
from storage.clock import SystemClock
from storage.lock import DirectoryLockedError, nobody_writes
from storage.ssd import UnusableDirectoryError
from storage.ssd.verifying import Report, verify

_DESCRIPTION = """Read everything in a data directory: format, index, segments, every record with its checksum, the
documents of namespaces and erasures, the shelves of tenants. Nothing is written, so it works on a read-only file
system. A service cannot be started on the directory meanwhile. What is found is mended by the next start of a service.
"""
_EXAMPLES = """examples:
  kvshelf verify /var/lib/kvshelf
  kvshelf verify /var/lib/kvshelf --no-payloads     index and segment sizes only: seconds
  kvshelf verify /mnt/copy --json

exit status: 0 all is sound, 1 something is damaged, 2 it cannot be verified: in use, no data directory, another format
"""
_SHOWN = 20
_DOCUMENTS = ("namespaces", "erasures", "scrub")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "verify",
        help="check a data directory that no service has open",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="the data directory")
    parser.add_argument("--no-payloads", action="store_true", help="do not read the records")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    directory: Path = arguments.directory
    report = Report()
    progress = Progress("verify", clock=SystemClock(), on_terminal=console.is_terminal())
    try:
        with nobody_writes(directory):
            _verify_documents(directory, report)
            for shelf in [directory, *sorted(directory.glob("tenants/*/"))]:
                verify(
                    shelf,
                    report,
                    payloads=not arguments.no_payloads,
                    progress=lambda done, total: progress.update(done / total if total else 1, lambda: size(done)),
                )
    except (DirectoryLockedError, UnusableDirectoryError) as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"cannot look at {directory}: {error.strerror}") from None
    finally:
        progress.clear()
    _say(arguments, report)
    return 0 if report.is_sound else 1


def _verify_documents(directory: Path, report: Report) -> None:
    for folder in _DOCUMENTS:
        for path in sorted((directory / folder).glob("*.json")):
            try:
                read_document(path)
            except CatalogError as error:
                report.found("document", str(error))


def _say(arguments: argparse.Namespace, report: Report) -> None:
    if arguments.json:
        document = {
            "sound": report.is_sound,
            "records": report.records,
            "payload_bytes": report.payload_bytes,
            "payloads_read": not arguments.no_payloads,
            "segments": report.segments,
            "counts": dict(report.counts),
            "findings": report.findings,
        }
        console.say(json.dumps(document, indent=2))
        return
    how = "indexed" if arguments.no_payloads else "read and compared with their checksums"
    console.say(f"{report.records:,} records ({size(report.payload_bytes)}) {how}, in {report.segments} segments")
    for finding in report.findings[:_SHOWN]:
        console.say(f"  {finding}")
    if report.is_sound:
        console.say("all is sound")
    else:
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(report.counts.items()))
        console.say(f"damaged: {told}; a start of the service keeps what is whole, and the rest is misses")
