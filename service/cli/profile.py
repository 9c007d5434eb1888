"""``kvshelf profile``: list the KV layouts that are known, and show how the bytes of one come about."""

import argparse
import json

from service.cli import console
from service.cli.errors import UsageError
from service.cli.profile_text import profile_table, profile_text
from service.profiles import Profile, ProfileError, find_profile, list_profiles

_EPILOG = """\
examples:
  kvshelf profile list
  kvshelf profile show deepseek-v4.1-flash/fp4
  kvshelf profile show mine.toml --json

a profile of your own is a TOML file; the sizes follow from it:
  cat > mine.toml <<'END'
  id = "mine/bf16"
  [[global_rows]]
  layers = 32
  row = [
    { name = "key", dtype = "bf16", shape = [8, 128] },
    { name = "value", dtype = "bf16", shape = [8, 128] },
  ]
  END
  kvshelf profile show mine.toml

docs/profiles.md describes windows, compression ratios, recurrent state and the number formats.
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register ``profile list`` and ``profile show``."""
    parser = commands.add_parser(
        "profile",
        help="list KV layouts and show how their bytes come about",
        description="KV layouts of models: what is kept for a token and at a boundary, computed from the geometry.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser(
        "list",
        help="all builtin profiles",
        description="All builtin profiles, one a line.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    listing.add_argument("--json", action="store_true", help="print a JSON array of what `show --json` prints")
    listing.set_defaults(run=_run_list)
    show = actions.add_parser(
        "show",
        help="one profile, builtin or of your own",
        description="One profile: its sizes, and the rows and states they come from.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    show.add_argument("profile", metavar="ID|FILE.toml", help="the id of a builtin profile, or a TOML file")
    show.add_argument("--json", action="store_true", help="print the sizes as a JSON object")
    show.set_defaults(run=_run_show)


def _run_list(arguments: argparse.Namespace) -> int:
    profiles = list_profiles()
    if arguments.json:
        console.say(json.dumps([profile.facts() for profile in profiles], indent=1))
    else:
        console.say(profile_table(profiles))
    return 0


def _run_show(arguments: argparse.Namespace) -> int:
    profile = named_profile(arguments.profile)
    if arguments.json:
        console.say(json.dumps(profile.facts(), indent=1))
    else:
        console.say(profile_text(profile))
    return 0


def named_profile(text: str) -> Profile:
    """The profile a command's argument names; raises UsageError where there is none or its file is not well formed."""
    try:
        return find_profile(text)
    except ProfileError as error:
        raise UsageError(str(error)) from None
