"""``kvshelf config show``: the settings in force, secrets masked."""

import argparse
import json
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, SecretStr

from service.cli import console
from service.cli.options import add_settings_options, settings_from
from service.settings import Settings

MASK = "**********"

_EXAMPLES = """examples:
  kvshelf config show                          defaults and environment
  kvshelf config show --config kvshelf.toml    with a file, as `kvshelf serve` would see it
  kvshelf config show --json                   for a script
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "config",
        help="look at the settings",
        description="The settings that the defaults, a file, the environment and the flags come to.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
            console.say(_line(name, value))
        console.say()
    return 0


def _line(name: str, value: object) -> str:
    """A setting as a line of TOML. What a file could not hold is a comment."""
    if value is None:
        return f"# {name} is not set"
    is_masked = isinstance(value, str) and MASK in value
    return f"{'# ' if is_masked else ''}{name} = {_toml(value)}"


def _toml(value: object) -> str:
    """Plain data as TOML on one line."""
    if isinstance(value, dict):
        there = [f"{_toml(str(key))} = {_toml(inner)}" for key, inner in value.items() if inner is not None]
        return "{" + ", ".join(there) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def settings_document(settings: Settings) -> dict[str, dict[str, object]]:
    """The settings as plain data, secrets masked."""
    return {group: {name: _plain(value) for name, value in getattr(settings, group)} for group in Settings.model_fields}


def _plain(value: object) -> object:
    if isinstance(value, SecretStr):
        return _masked(value.get_secret_value())
    if isinstance(value, BaseModel):
        return {name: _plain(inner) for name, inner in value}
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _masked(url: str) -> str:
    """A Redis URL without who asks and their password. In doubt, such as about an odd character, nothing is shown."""
    try:
        parts = urlsplit(url)
        place = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return MASK
    if parts.scheme not in ("redis", "rediss", "unix") or "pass" in parts.query or "#" in url or url.count("@") > 1:
        return MASK
    if "@" not in url:
        return url
    return urlunsplit((parts.scheme, f"{MASK}@{place}", parts.path, "", "")) if "@" in parts.netloc else MASK
