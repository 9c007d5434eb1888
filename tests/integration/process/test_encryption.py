"""A real service with encryption at rest, blocks on disk and snapshots in a real Redis: rotation, and dropped keys."""

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as redis_client

from tests.integration.process.conftest import Serve
from tests.support.redis_server import RedisServer
from tests.support.served import Served, eventually, kvshelf

MARK = b"plain KV that nobody may find "
TENANTS = ("acme", "other")
KEYS = {(tenant, number): base64.b64encode(os.urandom(32)).decode() for tenant in TENANTS for number in (1, 2)}
PROFILE = "deepseek-v4.1-flash/fp4"


def key_of(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


class Vault:
    """A service whose key file a test rewrites; one namespace a tenant, of the tenant's name."""

    def __init__(self, path: Path, serve: Serve, redis: RedisServer) -> None:
        self.path = path
        self.give(acme=[1], other=[1])
        self.served: Served = serve(
            "--redis-url", redis.url, KVSHELF_ENCRYPTION__KEY_FILE=str(path), KVSHELF_ENCRYPTION__REFRESH_SECONDS="1"
        )
        for tenant in TENANTS:
            body = {"tenant": tenant, "model": "m", "profile": PROFILE, "bytes_per_token": 100}
            answer = self.served.http.put(f"/v1/namespaces/{tenant}", json=body)
            assert answer.status_code == 201
            self.sizes = {kind: int(answer.json()[f"{kind}_bytes"]) for kind in ("block", "snapshot")}

    def give(self, **numbers: list[int]) -> None:
        """Write the key file anew with these keys."""
        lines = []
        for tenant, own in numbers.items():
            lines += [f"[tenants.{tenant}]", *(f'{number} = "{KEYS[tenant, number]}"' for number in own)]
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(lines))
        fresh.chmod(0o600)
        fresh.replace(self.path)

    def payload(self, kind: str) -> bytes:
        return (MARK * (self.sizes[kind] // len(MARK) + 1))[: self.sizes[kind]]

    def put(self, tenant: str, kind: str, number: int) -> int:
        url = f"/v1/namespaces/{tenant}/records/{kind}/{key_of(number)}?end_tokens=128"
        headers = {"content-type": "application/octet-stream"}
        return self.served.http.put(url, content=self.payload(kind), headers=headers).status_code

    def get(self, tenant: str, kind: str, number: int) -> str:
        answer = self.served.http.get(f"/v1/namespaces/{tenant}/records/{kind}/{key_of(number)}")
        if answer.status_code == 200:
            assert answer.content == self.payload(kind)
            return "ok"
        return str(answer.json()["reason"])

    def all(self, tenant: str, number: int = 1) -> set[str]:
        return {self.get(tenant, kind, number) for kind in ("block", "snapshot")}


@pytest.fixture
def vault(serve: Serve, redis: RedisServer, tmp_path: Path) -> Iterator[Vault]:
    made = Vault(tmp_path / "keys.toml", serve, redis)
    for tenant in TENANTS:
        assert {made.put(tenant, kind, 1) for kind in ("block", "snapshot")} == {201}
    yield made
    log = made.served.log_path.read_text()
    assert not [key for key in KEYS.values() if key in log], "no key in the log"


def test_nothing_plain_is_at_rest(vault: Vault, redis: RedisServer) -> None:
    assert vault.all("acme") == vault.all("other") == {"ok"}
    files = [path for path in vault.served.data_dir.rglob("*") if path.is_file()]
    assert not [path for path in files if MARK in path.read_bytes()]
    with redis_client.Redis.from_url(redis.url) as client:
        values = [client.dump(key) for key in client.scan_iter("*")]
    assert len(values) == 2
    assert not [value for value in values if MARK in bytes(value or b"")]


def test_a_dropped_key_erases_its_tenant_and_nobody_else(vault: Vault) -> None:
    vault.give(other=[1])
    eventually(lambda: vault.all("acme") == {"evicted"}, 10)
    assert vault.all("other") == {"ok"}
    assert {vault.put("acme", kind, 2) for kind in ("block", "snapshot")} == {507}
    plan = vault.served.http.post(
        "/v1/namespaces/acme/plan", json={"prompt_tokens": 300, "hashes": [key_of(1), key_of(2)]}
    )
    assert plan.json()["reasons"]["global"] == {"tokens": 0, "reason": "evicted"}
    assert vault.served.stop() == 0
    vault.served.start()
    assert (vault.all("acme"), vault.get("other", "block", 1)) == ({"evicted"}, "ok"), "a restart changes nothing"
    vault.give(acme=[2], other=[1])
    eventually(lambda: vault.put("acme", "block", 1) == 201, 10)
    assert vault.get("acme", "block", 1) == "ok", "with a new key it starts anew"


def test_keys_rotate(vault: Vault) -> None:
    vault.give(acme=[1, 2], other=[1])
    eventually(lambda: "keys_changed" in vault.served.log_path.read_text(), 10)
    assert vault.put("acme", "block", 2) == 201
    assert (vault.get("acme", "block", 1), vault.get("acme", "block", 2)) == ("ok", "ok")
    vault.give(acme=[2], other=[1])
    eventually(lambda: vault.get("acme", "block", 1) == "evicted", 10)
    assert vault.get("acme", "block", 2) == "ok"


def test_a_broken_key_file_changes_nothing_and_is_told(vault: Vault) -> None:
    vault.path.write_text("no TOML [")
    health = eventually(lambda: (now := vault.served.http.get("/healthz").json())["status"] == "degraded" and now, 10)
    assert health["causes"] == ["the encryption keys cannot be read; those read before stay in force"]
    assert vault.all("acme") == {"ok"}
    shown = kvshelf("config", "show", KVSHELF_ENCRYPTION__KEY_FILE=str(vault.path))
    assert str(vault.path) in shown.stdout
    assert vault.served.stop() == 0
    ended = kvshelf(
        "serve", "--port", "0", "--data-dir", str(vault.served.data_dir), KVSHELF_ENCRYPTION__KEY_FILE=str(vault.path)
    )
    assert ended.stderr == "kvshelf serve: the keys are no valid TOML\n"
    assert json.dumps(ended.stdout) == '""'
