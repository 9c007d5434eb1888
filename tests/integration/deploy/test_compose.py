"""The composition: its files are there, and what it would start works together when started without containers."""

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from service.settings import load_settings
from tests.support.deployed import DEPLOY, command_of, started, url_said_by
from tests.support.engine import BLOCK, frame, keys_of, plan, register, store
from tests.support.engine import tokens as tokens_of
from tests.support.served import eventually, kvshelf

COMPOSE = DEPLOY / "compose" / "compose.yaml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]


def mounts(service: str) -> dict[str, Path | str]:
    """Where the service finds what is mounted, and what that is: a file, or the name of a volume."""
    found: dict[str, Path | str] = {}
    for volume in SERVICES[service]["volumes"]:
        if isinstance(volume, str):
            name, _, there = volume.partition(":")
            found[there] = name
        else:
            source = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", volume["source"])  # Variables at their defaults.
            found[volume["target"]] = (COMPOSE.parent / source).resolve()
    return found


def test_no_directory_is_made_where_a_file_is_missing() -> None:
    volumes = [volume for service in SERVICES.values() for volume in service.get("volumes", [])]
    binds = [volume for volume in volumes if not isinstance(volume, str)]
    assert len(binds) > 5
    for bind in binds:
        assert (bind["type"], bind["read_only"], bind["bind"]) == ("bind", True, {"create_host_path": False})
    named = {volume.partition(":")[0] for volume in volumes if isinstance(volume, str)}
    assert named == set(yaml.safe_load(COMPOSE.read_text())["volumes"]), "a bind in short form would make directories"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_what_it_mounts_is_there_but_for_the_secrets() -> None:
    absent = {
        str(here) for name in SERVICES for here in mounts(name).values() if isinstance(here, Path) and not here.exists()
    }
    assert {Path(path).name for path in absent} == {"tokens.toml", "metrics-token"}


def test_nothing_is_published_beyond_this_machine_and_nothing_may_gain_rights() -> None:
    for name, service in SERVICES.items():
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    assert SERVICES["kvshelf"]["read_only"]


def test_no_password_has_a_default() -> None:
    assert SERVICES["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD"].startswith("${GRAFANA_PASSWORD:?")


def test_the_service_waits_longer_than_it_drains() -> None:
    settings = load_settings(COMPOSE.with_name("kvshelf.toml"), environment={})
    assert settings.server.drain_seconds < int(SERVICES["kvshelf"]["stop_grace_period"].removesuffix("s"))
    assert settings.pool.redis_url is not None
    assert "redis" in SERVICES
    assert settings.access.token_file == Path("/etc/kvshelf/tokens.toml")
    assert str(settings.access.token_file) in mounts("kvshelf")


@pytest.fixture
def pool() -> Iterator[str]:
    """The composition's Redis, on a free port; yields its address."""
    port = free_port()
    words = [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", word) for word in SERVICES["redis"]["command"]]
    command = command_of(words, mounts("redis"))
    with started([*command, "--port", str(port), "--bind", "127.0.0.1"], {}) as process:
        eventually(lambda: _listens(port), 20)
        yield f"redis://127.0.0.1:{port}/0"
        process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_what_it_would_start_works_together(pool: str, tmp_path: Path) -> None:
    new = ["token", "new", "--append-to", str(tmp_path / "tokens.toml"), "--group", str(os.getegid()), "--tenant"]
    tokens = [kvshelf(*new, *words).stdout.strip() for words in (["acme"], ["*", "--scopes", "read"])]
    command = command_of(["kvshelf", *SERVICES["kvshelf"]["command"]], mounts("kvshelf"))
    environment = {
        **SERVICES["kvshelf"]["environment"],
        "KVSHELF_CONFIG": str(mounts("kvshelf")[SERVICES["kvshelf"]["environment"]["KVSHELF_CONFIG"]]),
        "KVSHELF_SERVER__PORT": "0",
        "KVSHELF_GRPC__PORT": "0",
        "KVSHELF_STORE__DATA_DIR": str(tmp_path / "data"),
        "KVSHELF_STORE__BUDGET_BYTES": str(64 << 20),
        "KVSHELF_ACCESS__TOKEN_FILE": str(tmp_path / "tokens.toml"),
        "KVSHELF_POOL__REDIS_URL": pool,
    }
    with started(command, environment) as process:
        url = url_said_by(process).replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(url + "/healthz").json() == {"status": "ok", "causes": []}
        assert httpx.get(url + "/metrics").status_code == 401
        scraped = httpx.get(url + "/metrics", headers={"authorization": f"Bearer {tokens[1]}"})
        assert 'kvshelf_tier_up{tier="dram"} 1.0' in scraped.text
        with httpx.Client(base_url=url, headers={"authorization": f"Bearer {tokens[0]}"}, timeout=30) as http:
            prompt = tokens_of(20 * BLOCK + 1)
            register(http)
            store(http, b"".join(frame(key, (n + 1) * BLOCK) for n, key in enumerate(keys_of(http, prompt)[:20])))
            assert plan(http, prompt)["hit_tokens"] == 20 * BLOCK
        process.terminate()
        assert process.wait(30) == 0
