"""Where the keys come from: a TOML file, or a program that prints one.

[tenants.acme]
1 = "the base64 of 32 random bytes"
2 = "another; the highest number seals, all of them open what they sealed"
"""

import base64
import binascii
import os
import stat
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from storage.sealed import TenantKeys

MAX_SOURCE_BYTES = 16 << 20


class KeySourceError(ValueError):
    """The keys cannot be read or used. The text names the place and never has a key in it."""


class KeySource:
    """Reads all keys, each time anew.

    Args:
        path: the file; only its owner may read or write it.
        command: the program and its arguments, where there is no file.
        command_seconds: the longest it may run.
    """

    def __init__(self, path: Path | None, command: Sequence[str], command_seconds: float) -> None:
        self._path = path
        self._command = list(command)
        self._command_seconds = command_seconds

    def read(self) -> Mapping[str, TenantKeys]:
        """The keys by tenant.

        Raises:
            KeySourceError: see there.
        """
        return _parse(self._read_file(self._path) if self._path is not None else self._run())

    def _read_file(self, path: Path) -> bytes:
        try:
            with path.open("rb") as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
                    raise KeySourceError(f"the key file {path} is open to others than its owner; chmod 600 it")
                return file.read(MAX_SOURCE_BYTES + 1)
        except OSError as error:
            raise KeySourceError(f"the key file {path} cannot be read: {error.strerror}") from None

    def _run(self) -> bytes:
        name = self._command[0]
        try:
            ended = subprocess.run(
                self._command, stdin=subprocess.DEVNULL, capture_output=True, timeout=self._command_seconds, check=False
            )
        except OSError as error:
            raise KeySourceError(f"the key command {name} cannot be run: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise KeySourceError(f"the key command {name} ran longer than {self._command_seconds:g} s") from None
        if ended.returncode:  # what it printed may be a key
            raise KeySourceError(f"the key command {name} ended with status {ended.returncode}")
        return ended.stdout


def _parse(data: bytes) -> Mapping[str, TenantKeys]:
    if len(data) > MAX_SOURCE_BYTES:
        raise KeySourceError(f"the keys take more than {MAX_SOURCE_BYTES} bytes")
    try:
        document = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):  # their texts may quote a key
        raise KeySourceError("the keys are no valid TOML") from None
    tenants = document.get("tenants")
    if not isinstance(tenants, dict) or document.keys() != {"tenants"}:
        raise KeySourceError("the keys have one table for each tenant, [tenants.NAME], and nothing else")
    return {tenant: _keys_of(tenant, table) for tenant, table in tenants.items()}


def _keys_of(tenant: str, table: object) -> TenantKeys:
    if not isinstance(table, dict):
        raise KeySourceError(f"tenant {tenant!r} has no table of keys")
    keys: dict[int, bytes] = {}
    for number, text in table.items():
        if not number.isascii() or not number.isdecimal() or number != str(int(number)):
            raise KeySourceError(f"tenant {tenant!r}: a key goes by a number from 1, without leading zeros")
        try:
            keys[int(number)] = base64.b64decode(text, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise KeySourceError(f"tenant {tenant!r}, key {number}: no base64") from None
    try:
        return TenantKeys(keys)
    except ValueError as error:
        raise KeySourceError(f"tenant {tenant!r}: {error}") from None
