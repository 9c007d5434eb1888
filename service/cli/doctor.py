"""``kvshelf doctor``: say why a service hits less than it could, and what to do about it."""

import argparse
import json
import os
import secrets

from kvshelf_client.client import Client
from service.cli import console
from service.cli.admin import call
from service.cli.errors import CommandError
from service.doctor.findings import Finding, Severity, findings
from service.doctor.probe import Probe, Step
from service.settings.load import TOKEN_VARIABLE
from storage.clock import SystemClock

_BUDGET_SECONDS = 10.0
_EXAMPLES = """examples:
  kvshelf doctor                               the service on this machine: its figures, and a live request
  kvshelf doctor http://kvshelf-0.kvshelf:8710 --no-probe    figures only, nothing is stored
  KVSHELF_TOKEN=kvs_... kvshelf doctor URL     where tokens are asked for: the operator's, to read and to write

exit status: 0 nothing is wrong, 1 something needs a look, 2 something is broken (or it was asked wrongly)
"""
_MARKS = {Severity.FINE: "ok  ", Severity.LOOK: "look", Severity.BAD: "BAD "}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "doctor",
        help="say why a service hits less than it could",
        description="Explain a low hit rate: from the figures since the service started, and one live request.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8710", help="the service (default: %(default)s)")
    parser.add_argument("--no-probe", action="store_true", help="look at figures only; nothing is stored or asked for")
    parser.add_argument("--json", action="store_true", help="print findings and timings as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; the exit status is the worst finding's severity."""
    found = findings(call(arguments.url, "GET", "/v1/overview"))
    steps: list[Step] = []
    if not arguments.no_probe:
        probed, steps = _probe(arguments)
        found = sorted([*found, *probed], key=lambda finding: -finding.severity)
    if arguments.json:
        document = {
            "findings": [finding._asdict() | {"severity": finding.severity.name.lower()} for finding in found],
            "steps": [step._asdict() for step in steps],
        }
        console.say(json.dumps(document, indent=2))
    else:
        console.say(_text(found, steps))
    return int(found[0].severity)


def _probe(arguments: argparse.Namespace) -> tuple[list[Finding], list[Step]]:
    name = f"kvshelf-doctor-{secrets.token_hex(4)}"
    try:
        token = os.environ.get(TOKEN_VARIABLE)
        with Client(arguments.url, strict=True, budget_seconds=_BUDGET_SECONDS, token=token) as client:
            probe = Probe(client, SystemClock(), name)
            found = probe.run()
    except ValueError as error:
        raise CommandError(str(error)) from None
    if len(probe.steps) > 1:  # The namespace was made.
        call(arguments.url, "POST", "/v1/erasures", {"namespace": name, "forget_namespaces": True, "wipe": False})
    return found, probe.steps


def _text(found: list[Finding], steps: list[Step]) -> str:
    lines = []
    for finding in found:
        lines += [
            f"{_MARKS[finding.severity]}  {finding.title}",
            f"      {finding.evidence}",
            f"      {finding.advice}",
            "",
        ]
    if steps:
        timed = ", ".join(f"{step.name} {step.seconds * 1000:.1f} ms" for step in steps)
        lines.append(f"A live request: {timed}.")
    return "\n".join(lines).rstrip()
