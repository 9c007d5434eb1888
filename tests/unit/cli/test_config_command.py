"""``kvshelf config show``: what is in force, as a file could hold it, without secrets."""

import json
from pathlib import Path

import pytest

from service.cli.main import main
from service.settings import Settings, load_settings, setting_names

MASK = "**********"


def shown(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["config", "show", *options]) == 0
    return capsys.readouterr().out


def test_every_setting_is_shown_and_the_file_means_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSHELF_POOL__TTL_SECONDS", "77.5")
    monkeypatch.setenv("KVSHELF_STORE__WHEN_FULL", "refuse")
    monkeypatch.setenv("KVSHELF_POOL__KEY_PREFIX", 'a"b\\c ü')
    path = tmp_path / "kvshelf.toml"
    path.write_text(shown(capsys, "--port", "0", "--data-dir", "/data", "--redis-url", "redis://10.0.0.1:6380/2"))
    before = load_settings(None, {"server": {"port": 0}, "store": {"data_dir": "/data"}})
    for name in ("KVSHELF_POOL__TTL_SECONDS", "KVSHELF_STORE__WHEN_FULL", "KVSHELF_POOL__KEY_PREFIX"):
        monkeypatch.delenv(name)
    again = load_settings(path)
    assert (again.pool.ttl_seconds, again.store.when_full, again.pool.key_prefix) == (77.5, "refuse", 'a"b\\c ü')
    assert again.pool.redis_url is not None
    assert again.pool.redis_url.get_secret_value() == "redis://10.0.0.1:6380/2"
    assert (again.server, again.store, again.lease, again.limits) == (
        before.server,
        before.store,
        before.lease,
        before.limits,
    )
    assert shown(capsys, "--config", str(path)) == path.read_text()


def test_defaults_are_a_file_that_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kvshelf.toml"
    path.write_text(shown(capsys))
    assert "# redis_url is not set\n" in path.read_text()
    assert load_settings(path).model_dump() == Settings().model_dump()


def test_json_has_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(shown(capsys, "--json"))
    assert [f"{group}.{name}" for group, values in document.items() for name in values] == setting_names()
    assert document["pool"]["redis_url"] is None


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://:hunter2@10.0.0.1:6380/2", f"redis://{MASK}@10.0.0.1:6380/2"),
        ("rediss://me:hunter2@cache/0?ssl_cert_reqs=none", f"rediss://{MASK}@cache/0"),
        ("unix://:hunter2@/run/redis.sock?db=1", f"unix://{MASK}@/run/redis.sock"),
        ("redis://cache/0?password=hunter2", MASK),
        ("redis://:hun#ter2@cache", MASK),
        ("redis://:hunter2/x@cache", MASK),
        ("redis://:1/hunter2@cache", MASK),
        ("redis://:1?hunter2@cache", MASK),
        ("redis://:a@hunter2@cache", MASK),
        ("redis://:hunter2@cache:port", MASK),
        ("hunter2", MASK),
        ("", MASK),
    ],
)
def test_secrets_are_masked(url: str, masked: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, f"--redis-url={url}")
    assert f'# redis_url = "{masked}"\n' in text
    assert json.loads(shown(capsys, f"--redis-url={url}", "--json"))["pool"]["redis_url"] == masked
    (tmp_path / "kvshelf.toml").write_text(text)
    assert load_settings(tmp_path / "kvshelf.toml").pool.redis_url is None


def test_bad_settings_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--port", "-1"]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert "server.port" in output.err
