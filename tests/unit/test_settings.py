"""Settings: the order of their sources, what is refused, and that each one is documented."""

import re
from pathlib import Path

import pytest

from service.cli.config import settings_document
from service.settings import Settings, SettingsError, load_settings, setting_names

ROOT = Path(__file__).parents[2]


def test_every_setting_is_documented_and_every_documented_one_exists() -> None:
    text = (ROOT / "docs/configuration.md").read_text()
    assert re.findall(r"^\| `([a-z]+\.[a-z_]+)` \|", text, re.M) == setting_names()


def test_every_setting_has_a_description_and_its_unit_in_its_name() -> None:
    for group, field in Settings.model_fields.items():
        for name, setting in field.annotation.model_fields.items():  # type: ignore[union-attr]
            assert setting.description, f"{group}.{name}"
            numeric = setting.annotation in (int, float) and name not in ("port", "workers")
            if numeric:
                assert re.search(r"_(bytes|seconds)$|^bytes_per_second$|^max_[a-z_]+$", name), (
                    f"{group}.{name} has no unit"
                )


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kvshelf.toml"
    path.write_text("[server]\nport = 1\n[pool]\nttl_seconds = 7\nbudget_bytes = 5000000\n")
    assert load_settings(path).server.port == 1
    monkeypatch.setenv("KVSHELF_SERVER__PORT", "2")
    assert load_settings(path).server.port == 2
    settings = load_settings(path, {"server": {"port": 3}})
    assert (settings.server.port, settings.pool.ttl_seconds, settings.pool.budget_bytes) == (3, 7, 5_000_000)
    assert settings.server.host == "127.0.0.1"
    monkeypatch.setenv("KVSHELF_CONFIG", str(path))
    assert load_settings().pool.ttl_seconds == 7


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[server]\nprot = 1", "server.prot"),
        ("[sever]\nport = 1", "sever"),
        ("[server]\nport = 65536", "server.port"),
        ("[server]\nport = -1", "server.port"),
        ("[store]\nttl_seconds = 0", "store.ttl_seconds"),
        ("[store]\nwhen_full = 'panic'", "store.when_full"),
        ("[store]\nttl_seconds = inf", "store.ttl_seconds"),
        ("[pool]\nttl_seconds = nan", "pool.ttl_seconds"),
        ("[store]\nbudget_bytes = 99999999999999999999", "store.budget_bytes"),
        ("[lease]\nttl_seconds = 700", "lease.max_ttl_seconds"),
        ("[server]\nprot = 1", "did you mean server.port"),
        ("[server]\nhost = '0.0.0.0'", "loopback address, so others could reach the service, and no tokens are"),
        ("[server]\nhost = '0.0.0.0'", "set access.token_file (see `kvshelf token new`)"),
        (
            "[store]\nredis_url = 'redis://a'\n[access.tenants.a]\nstore_budget_bytes = 16777216",
            "on the SSD of this machine only",
        ),
        ("[tls]\ncert_file = 'a'", "tls.cert_file and tls.key_file go together"),
        ("[tls]\nkey_file = 'a'", "tls.cert_file and tls.key_file go together"),
        ("[tls]\nclient_ca_file = 'a'", "tls.client_ca_file takes tls.cert_file"),
        ("[server]\nhost = 'example.com'", "loopback"),
        ("[server", "TOML"),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path: Path, text: str, names: str) -> None:
    path = tmp_path / "kvshelf.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=re.escape(names)):
        load_settings(path)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_loopback_addresses_are_taken(host: str) -> None:
    assert load_settings(flags={"server": {"host": host}}).server.host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "kvshelf.example"])
def test_any_address_is_taken_with_tokens(host: str) -> None:
    flags = {"server": {"host": host}, "access": {"token_file": "tokens.toml"}}
    assert load_settings(flags=flags).server.host == host


@pytest.mark.parametrize(
    ("written", "budget_bytes"), [("10GiB", 10 << 30), ("10 GiB", 10 << 30), ("1TB", 10**12), ("16777216", 16 << 20)]
)
def test_sizes_and_durations_have_units_in_the_file_and_in_the_environment(
    written: str, budget_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kvshelf.toml"
    path.write_text(
        f'[store]\nbudget_bytes = "{written}"\nttl_seconds = "72h"\n[server]\ndrain_seconds = "0"\n'
        '[scrub]\nbytes_per_second = "5MB"\n[access.tenants.acme]\npool_budget_bytes = "4MiB"\n'
    )
    settings = load_settings(path)
    assert (settings.store.budget_bytes, settings.store.ttl_seconds) == (budget_bytes, 259_200)
    assert (settings.server.drain_seconds, settings.scrub.bytes_per_second) == (0, 5_000_000)
    assert settings.access.tenants["acme"].pool_budget_bytes == 4 << 20
    monkeypatch.setenv("KVSHELF_STORE__BUDGET_BYTES", written)
    monkeypatch.setenv("KVSHELF_POOL__TTL_SECONDS", "5m")
    assert (load_settings().store.budget_bytes, load_settings().pool.ttl_seconds) == (budget_bytes, 300)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[store]\nbudget_bytes = '1MiB'", "store.budget_bytes: must be at least 16 MiB"),
        ("[store]\nbudget_bytes = '10 gigs'", "store.budget_bytes: is no size, such as 4096, 64GB, 64GiB, 1.5TB"),
        ("[store]\nttl_seconds = 'soon'", "store.ttl_seconds: is no duration, such as 90s, 5m, 72h, 3d"),
        ("[lease]\nttl_seconds = '2h'", "lease.ttl_seconds: must be at most 1h"),
        ("[server]\nport = 65536", "server.port: must be at most 65535"),
        ("[access.tenants.a]\nstore_budget_bytes = 1", "access.tenants.a.store_budget_bytes: must be at least 16 MiB"),
        ("[access.tenants.a]\nstore_budget_bytes = '10GiB'", "come to 10 GiB, of the 10 GiB of store.budget_bytes"),
        ("[limits]\nmax_snapshot_bytes = '3GiB'", "limits.max_snapshot_bytes = 3 GiB"),
        ("port = 1", "port: unknown setting, did you mean server.port or grpc.port?"),
        ("[store]\nhost = 'a'", "store.host: unknown setting, did you mean server.host?"),
    ],
)
def test_errors_are_in_the_units_that_are_written_and_name_the_place(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "kvshelf.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=re.escape(says)):
        load_settings(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read"):
        load_settings(tmp_path / "none.toml")


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match="did you mean KVSHELF_SERVER__PORT"):
        load_settings(environment={"KVSHELF_SERVER_PORT": "1"})
    with pytest.raises(SettingsError, match="did you mean KVSHELF_SERVER__PORT"):
        load_settings(environment={"KVSHELF_SERVER__PROT": "1"})
    with pytest.raises(SettingsError, match="did you mean KVSHELF_SERVER__PORT or KVSHELF_GRPC__PORT"):
        load_settings(environment={"KVSHELF_PORT": "1"})
    load_settings(environment={"KVSHELF_TEST_REDIS_URL": "x", "OTHER": "y", "KVSHELF_TOKEN": "z"})


def test_secrets_are_masked() -> None:
    settings = load_settings(flags={"pool": {"redis_url": "redis://:hunter2@127.0.0.1"}})
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings_document(settings))
    assert settings.pool.redis_url is not None
    assert settings.pool.redis_url.get_secret_value().endswith("hunter2@127.0.0.1")
