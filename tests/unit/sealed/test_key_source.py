"""Keys from a file or a command: read again, refused in words, never shown."""

import base64
import os
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.sealing import KeyBook, KeySource, KeySourceError
from storage.clock import ManualClock

SECRET = base64.b64encode(b"k" * 32).decode()
ACME = f'[tenants.acme]\n1 = "{SECRET}"\n'
NAMESPACE = b"8 bytes."


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def book_of(path: Path, clock: ManualClock) -> KeyBook:
    return KeyBook(KeySource(path, (), 1), clock, refresh_seconds=60, tenant_of={NAMESPACE: "acme"}.get)


def test_keys_of_a_file(tmp_path: Path) -> None:
    keys = KeySource(write(tmp_path / "keys", ACME + f'3 = "{SECRET}"\n[tenants."b c"]\n1 = "{SECRET}"'), (), 1).read()
    assert {tenant: own.numbers for tenant, own in keys.items()} == {"acme": [1, 3], "b c": [1]}
    assert keys["acme"][3] == b"k" * 32


def test_keys_of_a_command(tmp_path: Path) -> None:
    path = write(tmp_path / "keys", ACME)
    assert list(KeySource(None, ("cat", str(path)), 5).read()) == ["acme"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("/no/such/program",), "cannot be run: No such file"),
        ((sys.executable, "-c", f"print('{SECRET}'); raise SystemExit(3)"), "ended with status 3"),
        ((sys.executable, "-c", "import threading; threading.Event().wait(60)"), "ran longer than 0.5 s"),
        (("echo", f"tenants = {SECRET}"), "no valid TOML"),
    ],
)
def test_a_command_that_fails(command: tuple[str, ...], message: str) -> None:
    with pytest.raises(KeySourceError, match=message) as caught:
        KeySource(None, command, 0.5).read()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{SECRET} =", "no valid TOML"),
        ("", "one table for each tenant"),
        (ACME + "[other]\n", "one table for each tenant"),
        (f'[tenants]\nacme = "{SECRET}"', "no table of keys"),
        ("[tenants.acme]\n", "at least one key"),
        (f'[tenants.acme]\n01 = "{SECRET}"', "without leading zeros"),
        (f'[tenants.acme]\nx = "{SECRET}"', "goes by a number"),
        (f'[tenants.acme]\n1 = "{SECRET[:-2]}"', "no base64"),
        (f'[tenants.acme]\n1 = "{SECRET[4:]}"', "32 bytes, has 29"),
        ("[tenants.acme]\n1 = 5", "no base64"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(KeySourceError, match=message) as caught:
        KeySource(write(tmp_path / "keys", text), (), 1).read()
    assert SECRET[4:-2] not in str(caught.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(KeySourceError, match="chmod 600"):
        KeySource(write(tmp_path / "keys", ACME, mode), (), 1).read()


def test_keys_come_and_go_while_it_runs(tmp_path: Path) -> None:
    clock, path = ManualClock(), write(tmp_path / "keys", ACME)
    book = book_of(path, clock)
    assert book.keys_of(NAMESPACE) is not None
    assert book.keys_of(b"unknown.") is None
    write(path, f'[tenants.other]\n1 = "{SECRET}"\n')
    book.refresh()
    assert book.keys_of(NAMESPACE) is not None, "it is not time yet"
    clock.advance(60)
    with capture_logs() as lines:
        book.refresh()
    assert book.keys_of(NAMESPACE) is None
    assert [(line["event"], line["tenant"], line["now"]) for line in lines] == [
        ("keys_changed", "acme", []),
        ("keys_changed", "other", [1]),
    ]
    assert SECRET not in str(lines)


def test_a_source_that_breaks_erases_nothing(tmp_path: Path) -> None:
    clock, path = ManualClock(), write(tmp_path / "keys", ACME)
    book = book_of(path, clock)
    os.unlink(path)
    with capture_logs() as lines:
        for _ in range(3):
            clock.advance(60)
            book.refresh()
    assert [line["event"] for line in lines] == ["keys_unusable"], "said once"
    assert book.keys_of(NAMESPACE) is not None
    assert "stay in force" in (book.trouble() or "")
    write(path, ACME)
    clock.advance(60)
    book.refresh()
    assert book.trouble() is None
