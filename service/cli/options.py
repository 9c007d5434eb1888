"""The options that several commands share."""

import argparse
from pathlib import Path
from typing import Any

from service.cli.errors import UsageError
from service.settings import Settings, SettingsError, load_settings

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
    parser.add_argument("--host", help="address to bind; loopback only")
    parser.add_argument("--port", type=int, help="port of the REST face; 0 takes a free one")
    parser.add_argument("--grpc-port", type=int, metavar="PORT", help="port of the gRPC face; without it there is none")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="directory of the SSD tier")
    parser.add_argument("--redis-url", metavar="URL", help="Redis of the DRAM pool; without it the pool is in process")


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
