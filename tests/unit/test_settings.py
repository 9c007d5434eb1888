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


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read"):
        load_settings(tmp_path / "none.toml")


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match="did you mean KVSHELF_SERVER__PORT"):
        load_settings(environment={"KVSHELF_SERVER_PORT": "1"})
    with pytest.raises(SettingsError, match="did you mean KVSHELF_SERVER__PORT"):
        load_settings(environment={"KVSHELF_SERVER__PROT": "1"})
    load_settings(environment={"KVSHELF_TEST_REDIS_URL": "x", "OTHER": "y", "KVSHELF_TOKEN": "z"})


def test_secrets_are_masked() -> None:
    settings = load_settings(flags={"pool": {"redis_url": "redis://:hunter2@127.0.0.1"}})
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings_document(settings))
    assert settings.pool.redis_url is not None
    assert settings.pool.redis_url.get_secret_value().endswith("hunter2@127.0.0.1")
