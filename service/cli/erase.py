"""``kvshelf erase``: have a service erase records for good, and wait for the receipt."""

import argparse
import json
import threading
from datetime import UTC, datetime
from typing import Any

from service.cli import console
from service.cli.admin import Service, service_of
from service.cli.errors import CommandError, UsageError
from service.cli.options import add_client_options
from service.cli.progress import Progress
from service.cli.tables import size
from storage.clock import Clock, SystemClock

_DESCRIPTION = """Erase records for good: they are misses at once, and their bytes are written over. All conditions that
are given must hold. Takes a token with the scope admin (KVSHELF_TOKEN) where the service asks for tokens.
"""
_EXAMPLES = """examples:
  kvshelf erase --namespace chat --dry-run           count what is there, erase nothing
  kvshelf erase --namespace chat --forget            all of it, and the namespace itself
  kvshelf erase --tenant acme --stored-before 2026-06-01T00:00:00+00:00
  kvshelf erase --revision 2026-05 --no-wait         come back later: kvshelf erase --job ID
  kvshelf erase --namespace chat --key 3f9a...       one block key, its block and snapshot

exit status: 0 done (or taken, with --no-wait), 1 the service failed, 2 asked wrongly, or no namespace matches,
130 interrupted: it goes on there
"""
_OF_NAMESPACES = ("namespace", "tenant", "model", "revision")
_POLL_SECONDS = 0.2


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "erase",
        help="erase records of a running service for good",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--url", default="http://127.0.0.1:8710", help="the service (default: %(default)s)")
    add_client_options(parser)
    parser.add_argument("--namespace", metavar="NAME", help="the namespace of this name")
    parser.add_argument("--tenant", metavar="NAME", help="namespaces of this tenant")
    parser.add_argument("--model", metavar="NAME", help="namespaces of this model")
    parser.add_argument("--revision", metavar="NAME", help="namespaces of this revision of the weights")
    parser.add_argument("--class", dest="record_class", choices=("block", "snapshot"), help="records of one class")
    parser.add_argument("--key", action="append", default=[], metavar="HEX", help="a block key; may be given again")
    parser.add_argument("--key-prefix", metavar="HEX", help="block keys that start like this")
    parser.add_argument("--stored-from", type=_time, metavar="TIME", help="stored then or later (ISO 8601)")
    parser.add_argument("--stored-before", type=_time, metavar="TIME", help="stored before then (ISO 8601)")
    parser.add_argument("--forget", action="store_true", help="remove the namespaces, too")
    parser.add_argument("--no-wipe", action="store_true", help="leave earlier copies in dead space to be written over")
    parser.add_argument("--dry-run", action="store_true", help="count, and erase nothing")
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it is done")
    parser.add_argument("--job", metavar="ID", help="show and wait for an erasure that was asked for before")
    parser.add_argument("--json", action="store_true", help="print the receipt as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    service = service_of(arguments)
    if arguments.job:
        job = service.call("GET", f"/v1/erasures/{arguments.job}")
    else:
        job = service.call("POST", "/v1/erasures", _body(arguments))
    if not arguments.no_wait:
        job = _wait(service, job, SystemClock())
    console.say(json.dumps(job, indent=2) if arguments.json else _receipt(job))
    asked = [f"--{name} {value}" for name in _OF_NAMESPACES if (value := getattr(arguments, name)) is not None]
    if asked and not arguments.job and not job["namespaces"]:
        raise UsageError(
            f"nothing was erased: no namespace matches {' '.join(asked)} (GET /v1/namespaces has them all)"
        )
    return 0


def _body(arguments: argparse.Namespace) -> dict[str, Any]:
    body = {
        "namespace": arguments.namespace,
        "tenant": arguments.tenant,
        "model": arguments.model,
        "weights_revision": arguments.revision,
        "record_class": arguments.record_class,
        "keys": arguments.key,
        "key_prefix": arguments.key_prefix,
        "stored_from": arguments.stored_from,
        "stored_before": arguments.stored_before,
    }
    named = {name: value for name, value in body.items() if value not in (None, [])}
    if not named:
        raise UsageError("name what is to be erased: --namespace, --tenant, --revision, ...; --help has them all")
    how = {"dry_run": arguments.dry_run, "forget_namespaces": arguments.forget, "wipe": not arguments.no_wipe}
    return named | how


def _wait(service: Service, job: dict[str, Any], clock: Clock) -> dict[str, Any]:
    progress = Progress("erase", clock=clock, on_terminal=console.is_terminal())
    pause = threading.Event()
    try:
        while job["state"] != "done":
            pause.wait(_POLL_SECONDS)
            job = service.call("GET", f"/v1/erasures/{job['erasure_id']}")
            now = job
            progress.update(0.0, lambda now=now: f"{now['step'] or now['state']} {now['trouble']}".strip())  # type: ignore[misc]
    except CommandError as error:
        raise CommandError(f"{error}; the erasure {job['erasure_id']} goes on when the service does") from None
    finally:
        progress.clear()
    return job


def _receipt(job: dict[str, Any]) -> str:
    is_dry = job["asked"]["dry_run"]
    verb = "would be erased" if is_dry else "erased" if job["state"] == "done" else f"erased so far ({job['state']})"
    lines = [
        f"erasure {job['erasure_id']}: "
        + ", ".join(
            f"{job['records'][kind]:,} {kind}s ({size(job['payload_bytes'][kind])})" for kind in ("block", "snapshot")
        )
        + f" {verb}",
        "namespaces: " + (", ".join(f"{one['name']} ({one['tenant']})" for one in job["namespaces"]) or "none"),
    ]
    if not is_dry:
        lines.append(f"written over beyond them: {size(job['wiped_bytes'])}; leases ended: {job['leases_ended']}")
        if job["unwiped_segments"]:
            lines.append(f"held by leases all the time and not wiped: {job['unwiped_segments']} segments")
        lines.append("not reached:")
        lines += [f"  - {text}" for text in job["not_guaranteed"]]
    return "\n".join(lines)


def _time(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 2026-06-01T00:00:00+00:00") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
