"""The systemd unit: accepted by systemd, hardened, and its command does what `Type=notify` promises."""

import configparser
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.notify import READY, STOPPING, notify
from service.settings import load_settings
from tests.support.deployed import DEPLOY, KVSHELF, ServiceManager, command_of, started, url_said_by

UNIT = DEPLOY / "systemd" / "kvshelf.service"
CONFIG = DEPLOY / "systemd" / "kvshelf.toml"
MOST_EXPOSURE = 2.0
"""Of 10, as `systemd-analyze security` counts it; what an unhardened service has is 9.6."""


class _Unit(configparser.RawConfigParser):
    """A unit file; of a key given twice the last one is kept."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


@pytest.fixture
def unit() -> _Unit:
    parser = _Unit(strict=False)
    parser.read(UNIT)
    return parser


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ServiceManager]:
    manager = ServiceManager(tmp_path / "notify")
    yield manager
    manager.close()


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    # The program is not installed where the unit says: any other complaint is one.
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text().replace("/opt/kvshelf/bin/kvshelf", KVSHELF[0]))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", here], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_unit_is_hardened(unit: _Unit) -> None:
    report = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={int(MOST_EXPOSURE * 10)}", UNIT],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert report.returncode == 0, report.stdout[-300:]
    assert unit["Service"]["CapabilityBoundingSet"] == ""


def test_the_shipped_settings_are_settings() -> None:
    settings = load_settings(CONFIG, environment={})
    assert str(settings.store.data_dir).startswith("/var/lib/kvshelf/"), "outside StateDirectory= nothing is writable"


def test_the_command_tells_its_states(unit: _Unit, tmp_path: Path, manager: ServiceManager) -> None:
    service = unit["Service"]
    assert service["Type"] == "notify"
    command = command_of(shlex.split(service["ExecStart"]), {"/etc/kvshelf/kvshelf.toml": CONFIG})
    environment = {
        **dict(pair.split("=", 1) for pair in shlex.split(service["Environment"])),
        "NOTIFY_SOCKET": str(manager.path),
        "KVSHELF_STORE__DATA_DIR": str(tmp_path / "data"),
        "KVSHELF_STORE__BUDGET_BYTES": str(64 << 20),
        "KVSHELF_SERVER__PORT": "0",
        "KVSHELF_GRPC__PORT": "0",
    }
    with started(command, environment) as process:
        url = url_said_by(process)
        assert manager.told() == READY
        assert httpx.get(url + "/readyz").status_code == 204
        process.send_signal(signal.SIGTERM)
        assert manager.told() == STOPPING
        assert process.wait(30) == 0


def test_a_manager_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    assert not notify(READY, {})
    assert not notify(READY, {"NOTIFY_SOCKET": str(tmp_path / "nobody")})


def test_an_abstract_address_is_reached(tmp_path: Path) -> None:
    manager = ServiceManager(Path("\0" + tmp_path.as_posix()))
    assert notify(READY, {"NOTIFY_SOCKET": "@" + tmp_path.as_posix()})
    assert manager.told() == READY
    manager.close()
