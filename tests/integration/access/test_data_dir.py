"""The data directory: kvshelf's or left alone, read by nobody else, with a part of its own for each tenant."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.access import Principal, Scope
from service.namespaces import Namespace
from service.settings import SettingsError, load_settings
from service.shelf.assemble import open_service
from service.shelf.parts import Parts
from service.shelf.shelves import directory_name
from storage.clock import ManualClock
from storage.ssd import UnusableDirectoryError
from tests.support.engine import register, serve_cold, tokens
from tests.support.namespaces import spec
from tests.support.records import make_record
from tests.support.served import Served, kvshelf

MIB = 1 << 20


def open_with(directory: Path, **tenants: dict[str, int]) -> Parts:
    flags = {
        "store": {"data_dir": directory, "budget_bytes": 64 * MIB},
        "pool": {"budget_bytes": 4 * MIB},
        "access": {"tenants": tenants},
    }
    return open_service(load_settings(flags=flags, environment={}), ManualClock())


def namespace_of(parts: Parts, tenant: str) -> Namespace:
    principal = Principal(tenant, frozenset(Scope))
    return parts.namespaces.register(principal, tenant, spec(tenant=tenant))[0]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Makes all that it makes in a directory that a loose umask has already made."""
    (tmp_path / "data").mkdir(mode=0o755)
    server = Served(tmp_path)
    yield server
    server.close()


def test_nobody_else_can_read_what_is_kept(served: Served) -> None:
    before = os.umask(0o000)
    try:
        served.start()
    finally:
        os.umask(before)
    register(served.http)
    serve_cold(served.http, tokens(1000))
    served.stop()
    found = [served.data_dir, *served.data_dir.rglob("*")]
    modes = {path.relative_to(served.data_dir): stat.S_IMODE(path.lstat().st_mode) for path in found}
    assert {mode for path, mode in modes.items() if (served.data_dir / path).is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if (served.data_dir / path).is_file()} == {0o600}
    assert len(modes) > 8
    assert "data_dir_closed_to_others" in [line["event"] for line in served.log()]


@pytest.mark.parametrize("foreign", [["notes.txt"], ["a", "b", "c", "d", "e"], [".git"], ["index"], ["segments"]])
def test_a_directory_of_somebody_else_is_left_as_it_is(tmp_path: Path, foreign: list[str]) -> None:
    for name in foreign:
        (tmp_path / name).mkdir()
    tmp_path.chmod(0o755)
    with pytest.raises(UnusableDirectoryError, match=r"no data directory of kvshelf: name another, or an empty one"):
        open_with(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(foreign)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_the_command_says_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    ended = kvshelf("serve", "--port", "0", "--data-dir", str(tmp_path))
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"kvshelf serve: {tmp_path} holds thesis.tex but no FORMAT")
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("left", [[], ["kvshelf.lock"], ["kvshelf.lock", "namespaces"], ["lost+found"]])
def test_an_empty_directory_and_a_start_that_broke_off_are_taken(tmp_path: Path, left: list[str]) -> None:
    for name in left:
        (tmp_path / name).touch() if name == "kvshelf.lock" else (tmp_path / name).mkdir()
    for _ in range(2):
        open_with(tmp_path).close()


def test_a_tenant_with_a_budget_has_a_shelf_of_its_own(tmp_path: Path) -> None:
    parts = open_with(tmp_path, acme={"store_budget_bytes": 16 * MIB, "pool_budget_bytes": 1 * MIB})
    assert parts.blocks.usage().budget_bytes == 64 * MIB
    assert parts.snapshots.usage().budget_bytes == 4 * MIB
    own, other = (namespace_of(parts, tenant) for tenant in ("acme", "other"))
    for number, namespace in enumerate((own, other, other)):
        record = make_record(number)
        record = record._replace(id=namespace.record_id(record.id.key))
        for tier in (parts.blocks, parts.snapshots):
            tier.write([record], durable=True)
    parts.close()
    directory = tmp_path / "tenants" / directory_name("acme")
    assert directory.is_dir()
    again = open_with(tmp_path, acme={"store_budget_bytes": 32 * MIB})
    assert again.blocks.usage().records == 3
    again.close()
    with capture_logs() as lines:
        without = open_with(tmp_path)
    assert without.blocks.usage().records == 2
    without.close()
    assert [line["path"] for line in lines if line["event"] == "tenant_shelf_unused"] == [str(directory)]


def test_budgets_are_summed_at_the_start(tmp_path: Path) -> None:
    def tenants(first: int, second: int, name: str = "store") -> dict[str, dict[str, int]]:
        return {"a": {f"{name}_budget_bytes": first}, "b": {f"{name}_budget_bytes": second}}

    open_with(tmp_path, **tenants(32 * MIB, 16 * MIB)).close()
    with pytest.raises(SettingsError, match=r"store_budget_bytes come to 48 MiB, of the 64 MiB"):
        open_with(tmp_path, **tenants(32 * MIB, 16 * MIB + 1))
    open_with(tmp_path, **tenants(2 * MIB, 1 * MIB, "pool")).close()
    with pytest.raises(SettingsError, match="pool_budget_bytes come to 3 MiB, of the 4 MiB"):
        open_with(tmp_path, **tenants(2 * MIB, 1 * MIB + 1, "pool"))


@pytest.mark.parametrize("tenant", ["*", "", "x" * 65, "a\n"])
def test_budgets_are_of_tenants(tmp_path: Path, tenant: str) -> None:
    with pytest.raises(SettingsError, match=r"access\.tenants"):
        open_with(tmp_path, **{tenant: {}})


def test_directories_of_tenants_are_told_apart_whatever_their_letters() -> None:
    tenants = ["a", "A", "a/b", "a-b", "a b", "..", ".", "ä", "x" * 64, "x" * 63 + "y"]
    names = [directory_name(tenant) for tenant in tenants]
    assert len({name.lower() for name in names}) == len(tenants)
    assert all("/" not in name and not name.startswith("..") and len(name) < 64 for name in names)
