"""``kvshelf token``: make tokens, and look at the file that lists them."""

import argparse
import grp
import os
import secrets
import stat
from datetime import UTC, datetime
from pathlib import Path

from service.access import GuardedAccess, Scope, TokenFileError
from service.access.tokens import Token, describe_entry, make_token
from service.cli import console
from service.cli.errors import CommandError, UsageError
from service.cli.numbers import number_from
from service.cli.tables import table
from storage.clock import SystemClock

_EXAMPLES = """examples:
  kvshelf token new --tenant acme                             an engine's: read and write
  kvshelf token new --tenant acme --scopes read,write,admin   may erase the tenant's records too
  kvshelf token new --tenant '*' --scopes read --id scraper   the operator's, for metrics of the whole service
  kvshelf token new --tenant acme --append-to /etc/kvshelf/tokens.toml --group kvshelf
  kvshelf token list tokens.toml                              whose tokens a file has

The token is shown once and kept nowhere: the file named by access.token_file has its SHA-256 only. A running service
takes a changed file over within a second or so.
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "token",
        help="make tokens, look at the file that lists them",
        description="Tokens decide who may use a service, and what of it they see.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    new = actions.add_parser("new", help="make a token, and the lines for the file")
    new.add_argument("--tenant", required=True, help="whose it is; '*' for the operator of the service")
    new.add_argument("--scopes", default="read,write", help="of read, write, admin (default: read,write)")
    new.add_argument("--id", help="a name for logs, 1 to 64 of a-z 0-9 and - (default: a random one)")
    new.add_argument("--days", type=number_from(0.001, 36_500), help="how long it is taken (default: for ever)")
    new.add_argument(
        "--append-to", type=Path, metavar="FILE", help="add the lines to this file instead of showing them"
    )
    text = "who else may read that file: the group of the service's user, by name or number (default: its owner alone)"
    new.add_argument("--group", help=text)
    new.set_defaults(run=run_new)
    show = actions.add_parser("list", help="show whose tokens a file has")
    show.add_argument("file", type=Path, help="the file named by access.token_file")
    show.set_defaults(run=run_list)


def run_new(arguments: argparse.Namespace) -> int:
    """Make a token."""
    scopes = _scopes(arguments.scopes)
    expires = None
    if arguments.days is not None:
        expires = datetime.fromtimestamp(SystemClock().now() + arguments.days * 86_400, UTC)
    try:
        token = make_token(arguments.id or secrets.token_hex(4), secrets.token_bytes)
        lines = describe_entry(token, arguments.tenant, scopes, expires)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if arguments.append_to is None:
        if arguments.group is not None:
            raise UsageError("--group is of the file named by --append-to")
        console.say(f"{token}\n\n# for the file named by access.token_file:\n{lines}")
    else:
        _check_id_is_new(arguments.append_to, arguments.id)
        _append(arguments.append_to, lines, None if arguments.group is None else _group(arguments.group))
        console.say(token)
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    """Show the tokens of a file."""
    clock = SystemClock()
    rows = []
    for token in _tokens_of(arguments.file):
        who = token.principal
        expires = "never"
        if token.expires_at is not None:
            expires = datetime.fromtimestamp(token.expires_at, UTC).isoformat(" ", "minutes")
            expires += " (over)" if clock.now() >= token.expires_at else ""
        rows.append([who.token_id, who.tenant or "", ", ".join(s for s in Scope if s in who.scopes), expires])
    console.say(table(["id", "tenant", "scopes", "expires"], rows))
    return 0


def _scopes(text: str) -> frozenset[Scope]:
    try:
        return frozenset(Scope(word.strip()) for word in text.split(","))
    except ValueError:
        raise UsageError(f"--scopes takes words of {', '.join(Scope)}, separated by commas") from None


def _tokens_of(path: Path) -> tuple[Token, ...]:
    try:
        return GuardedAccess(path, SystemClock()).tokens
    except TokenFileError as error:
        raise CommandError(str(error)) from None


def _check_id_is_new(path: Path, token_id: str | None) -> None:
    """A service would not start with a file that has an id twice, nor take it over."""
    if path.exists() and token_id in {token.principal.token_id for token in _tokens_of(path)}:
        raise UsageError(f"{path} has a token of the id {token_id} already: name another --id, or take that one out")


def _group(text: str) -> int:
    """The number of a group that is named, or the number that is given: a container's need not exist here."""
    try:
        return int(text) if text.isdecimal() else grp.getgrnam(text).gr_gid
    except KeyError:
        raise UsageError(f"there is no group {text!r} on this machine; --group takes a number, too") from None


def _append(path: Path, lines: str, group: int | None) -> None:
    """Add lines to a file, whose owner and mode stay; a new one can be read by its owner alone, and by ``group``."""
    try:
        is_new = not path.exists()
        with open(path, "a", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            if group is not None:
                os.fchown(file.fileno(), -1, group)
                os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) | stat.S_IRGRP)
            file.write(f"\n{lines}\n" if file.tell() else f"{lines}\n")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
    if is_new and group is None and os.geteuid() == 0:
        console.warn(
            f"{path} is new, and root alone can read it; for a service of another user: --group GROUP, or chgrp"
        )
