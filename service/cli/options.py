"""The options that several commands share."""

import argparse
import os
from pathlib import Path
from typing import Any

from kvshelf_client.options import ClientOptions
from kvshelf_client.transport import Tls
from service.cli.errors import UsageError
from service.settings import Settings, SettingsError, load_settings
from service.settings.load import TOKEN_VARIABLE

_OPTIONS = (
    ("host", "server", "host"),
    ("port", "server", "port"),
    ("grpc_port", "grpc", "port"),
    ("data_dir", "store", "data_dir"),
    ("redis_url", "pool", "redis_url"),
)
"""Which setting each option is."""


def add_settings_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--config`` and the flags of the settings that are asked for most."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings (or KVSHELF_CONFIG)")
    parser.add_argument("--host", help="address to bind; one beyond this machine takes tokens")
    parser.add_argument("--port", type=int, help="port of the REST face; 0 takes a free one")
    parser.add_argument("--grpc-port", type=int, metavar="PORT", help="port of the gRPC face; without it there is none")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="directory of the SSD tier")
    parser.add_argument("--redis-url", metavar="URL", help="Redis of the DRAM pool; without it the pool is in process")


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """Add what a command that talks to a service tells its client."""
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        help=f"what the service asks for (or {TOKEN_VARIABLE}, which nobody else on the machine sees)",
    )
    parser.add_argument(
        "--ca-file", metavar="FILE", help="authorities to trust with https, PEM (default: the system's)"
    )
    parser.add_argument("--cert-file", metavar="FILE", help="certificate to show to a service that asks for one, PEM")
    parser.add_argument("--key-file", metavar="FILE", help="the key of that certificate, if it is not in its file")


def client_options(arguments: argparse.Namespace, budget_seconds: float) -> ClientOptions:
    """What the options and the environment come to: of a strict client, so that the command can say what went wrong."""
    token = arguments.token or os.environ.get(TOKEN_VARIABLE) or None
    tls = Tls(arguments.ca_file, arguments.cert_file, arguments.key_file)
    return {"strict": True, "budget_seconds": budget_seconds, "token": token, "tls": tls}


def with_token_hint(status: int, text: str) -> str:
    """What a service answered with an HTTP status; where it is about the token, with where commands take that from."""
    hint = f" (commands take the token from {TOKEN_VARIABLE}, or --token)" if status in (401, 403) else ""
    return text + hint


def settings_from(arguments: argparse.Namespace, extra: dict[str, dict[str, Any]] | None = None) -> Settings:
    """The settings that the options, the environment and the file come to; raises UsageError."""
    flags: dict[str, dict[str, Any]] = {group: dict(values) for group, values in (extra or {}).items()}
    for option, group, name in _OPTIONS:
        value = getattr(arguments, option, None)
        if value is not None:
            flags.setdefault(group, {})[name] = value
    try:
        return load_settings(getattr(arguments, "config", None), flags)
    except SettingsError as error:
        raise UsageError(str(error)) from None
