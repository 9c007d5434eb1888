"""``kvshelf config show``: the settings in force, secrets masked."""

import argparse
import json

from pydantic import SecretStr

from service.cli import console
from service.cli.options import add_settings_options, settings_from
from service.settings import Settings

_EXAMPLES = """examples:
  kvshelf config show                          defaults and environment
  kvshelf config show --config kvshelf.toml    with a file, as `kvshelf serve` would see it
  kvshelf config show --json                   for a script
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = commands.add_parser("config", help="look at the settings")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser(
        "show",
        help="print the settings in force",
        description="Print every setting in force as TOML that a file could hold. Secrets are masked.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_settings_options(show)
    show.add_argument("--json", action="store_true", help="print JSON")
    show.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    document = settings_document(settings_from(arguments))
    if arguments.json:
        console.say(json.dumps(document, indent=2))
        return 0
    for group, values in document.items():
        console.say(f"[{group}]")
        for name, value in values.items():
            console.say(f"# {name} is not set" if value is None else f"{name} = {json.dumps(value)}")
        console.say()
    return 0


def settings_document(settings: Settings) -> dict[str, dict[str, object]]:
    """The settings as plain data, secrets masked."""
    return {group: {name: _plain(value) for name, value in getattr(settings, group)} for group in Settings.model_fields}


def _plain(value: object) -> object:
    if isinstance(value, SecretStr):
        return "**********"
    return value if isinstance(value, bool | int | float | str | None) else str(value)
