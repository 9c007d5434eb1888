"""``kvshelf doctor``: say why a service hits less than it could, and what to do about it."""

import argparse
import json
import os
import secrets
from typing import Any, NamedTuple

from kvshelf_client.client import Client
from kvshelf_client.errors import KvshelfError
from service.cli import console
from service.cli.admin import RefusedError, Service, service_of
from service.cli.errors import CommandError, UsageError
from service.cli.options import add_client_options, client_options
from service.doctor.probe import Probe, ProbeDeniedError, Step
from service.overview.finding import Finding
from service.settings.load import PROBE_TOKEN_VARIABLE, TOKEN_VARIABLE
from storage.clock import SystemClock

_BUDGET_SECONDS = 10.0
_NAME = "kvshelf-doctor"
_EXAMPLES = """examples:
  kvshelf doctor                               the service on this machine: its figures, and a live request
  kvshelf doctor http://kvshelf-0.kvshelf:8710 --no-probe    figures only, nothing is stored
  KVSHELF_TOKEN=kvs_... KVSHELF_PROBE_TOKEN=kvs_... kvshelf doctor https://kvshelf-0.kvshelf:8710 --ca-file ca.pem

Where tokens are asked for, figures take the operator's (tenant '*', scope read) in KVSHELF_TOKEN, and the live request
a tenant's (read,write) in KVSHELF_PROBE_TOKEN. With one of the two, what it may not do is left out, and said.

exit status: 0 nothing is wrong, 1 something needs a look, 2 something is broken or does not answer (or asked wrongly)
"""
_MARKS = {"none": "    ", "good": "ok  ", "look": "look", "bad": "BAD "}
_STATUS = {"look": 1, "bad": 2}
_WELL = Finding("good", "service", "Nothing is wrong that its figures tell", "Of {window}.", "The page at / has them.")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "doctor",
        help="say why a service hits less than it could",
        description="Explain a low hit rate: from its figures of the last minutes, and one live request.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8710", help="the service (default: %(default)s)")
    add_client_options(parser)
    text = f"a tenant's token for the live request (or {PROBE_TOKEN_VARIABLE}; default: the other token)"
    parser.add_argument("--probe-token", metavar="TOKEN", help=text)
    parser.add_argument("--no-probe", action="store_true", help="look at figures only; nothing is stored or asked for")
    parser.add_argument("--json", action="store_true", help="print findings and timings as JSON")
    parser.set_defaults(run=run)


class _Seen(NamedTuple):
    """What was found, the steps that were timed, and what was left out, and why."""

    found: list[Finding]
    steps: list[Step]
    notes: list[str]


def run(arguments: argparse.Namespace) -> int:
    """Run the command; the exit status is the worst finding's severity."""
    seen = _look(arguments)
    found = sorted(seen.found, key=lambda finding: -finding.badness)
    if arguments.json:
        document = {
            "findings": [finding._asdict() for finding in found],
            "steps": [step._asdict() for step in seen.steps],
            "notes": seen.notes,
        }
        console.say(json.dumps(document, indent=2))
    else:
        console.say(_text(found, seen.steps, seen.notes))
    return max((_STATUS.get(finding.level, 0) for finding in found), default=0)


def _look(arguments: argparse.Namespace) -> _Seen:
    service = service_of(arguments)
    notes: list[str] = []
    found: list[Finding] = []
    try:
        found = _found_by(service.call("GET", "/v1/overview"))
    except RefusedError as error:
        if error.status != 403 or arguments.no_probe:
            raise
        notes.append(
            f"Figures were left out, this token may not see them: they take the operator's in {TOKEN_VARIABLE}"
            " (kvshelf token new --tenant '*' --scopes read). kvshelf health takes none."
        )
    except CommandError as error:
        advice = "Start it, or name its address; see KvshelfDown in docs/runbook.md."
        return _Seen([Finding("bad", "service", "The service does not answer", str(error), advice)], [], [])
    if arguments.no_probe:
        return _Seen(found, [], notes)
    probed = _probe(arguments, service)
    return _Seen([*found, *probed.found], probed.steps, [*notes, *probed.notes])


def _found_by(overview: dict[str, Any]) -> list[Finding]:
    """What the service found itself, as its page has it."""
    found = [Finding(**one) for one in overview["findings"]]
    is_well = not any(one.level in _STATUS for one in found)
    well = _WELL._replace(evidence=_WELL.evidence.format(window=overview["window"]))
    return [*found, well] if is_well else found


def _probe(arguments: argparse.Namespace, service: Service) -> _Seen:
    options = client_options(arguments, _BUDGET_SECONDS)
    given = arguments.probe_token or os.environ.get(PROBE_TOKEN_VARIABLE)
    token = options["token"] = given or options["token"]
    eraser = next((one for one in (service_of(arguments, token=token), service) if _may_erase(one)), None)
    # A namespace that cannot be erased afterwards is the same one each time, so that there is never more than one.
    name = f"{_NAME}-{secrets.token_hex(4)}" if eraser else _NAME
    try:
        with Client(arguments.url, **options) as client:
            probe = Probe(client, SystemClock(), name, None if token else _NAME, secrets.randbelow(1 << 30))
            try:
                stays = f"The namespace {name} stays, without records: to erase it takes a token with the scope admin."
                return _Seen(probe.run(), probe.steps, [] if eraser else [stays])
            except ProbeDeniedError as error:
                return _denied(error, is_given=given is not None)
            finally:
                _clean_up(probe, name, eraser)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _denied(error: ProbeDeniedError, *, is_given: bool) -> _Seen:
    advice = f"give a tenant's, with read and write: {PROBE_TOKEN_VARIABLE}, or --probe-token"
    if is_given:
        raise UsageError(f"the token for the live request may not make it, {error}: {advice}")
    return _Seen([], [], [f"No live request was tried, this token may not make it: {advice}. ({error})"])


def _may_erase(service: Service) -> bool:
    try:
        service.call("GET", "/v1/erasures")
    except (RefusedError, CommandError):
        return False
    return True


def _clean_up(probe: Probe, name: str, eraser: Service | None) -> None:
    """Leave nothing behind: the records live for a while if that fails, which is not what the doctor was asked."""
    try:
        if eraser is None:
            probe.delete_stored()
        elif probe.has_namespace:
            eraser.call("POST", "/v1/erasures", {"namespace": name, "forget_namespaces": True, "wipe": False})
    except (KvshelfError, CommandError, UsageError) as error:
        console.warn(f"the namespace {name} stays: {error}")


def _text(found: list[Finding], steps: list[Step], notes: list[str]) -> str:
    lines = []
    for finding in found:
        lines += [
            f"{_MARKS[finding.level]}  {finding.title}",
            f"      {finding.evidence}",
            f"      {finding.advice}",
            "",
        ]
    if steps:
        timed = ", ".join(f"{step.name} {step.seconds * 1000:.1f} ms" for step in steps)
        lines.append(f"A live request: {timed}.")
    return "\n".join([*lines, *notes]).rstrip()
