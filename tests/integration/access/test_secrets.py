"""Secrets and payloads are in no log, metric, statistic, error or shown setting: everything is searched."""

import base64
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kvshelf_client.frames import MEDIA_TYPE
from tests.integration.access.test_gate import NEEDS, address
from tests.integration.access.test_process import new_token
from tests.support.certificates import Authority
from tests.support.engine import BLOCK_BYTES, frame, keys_of, plan, register, store, tokens
from tests.support.redis_server import RedisServer
from tests.support.served import Served, eventually, kvshelf


class Canaries:
    """Secrets by name, and every form in which one could be seen."""

    def __init__(self) -> None:
        self._secrets: dict[str, bytes] = {}

    def add(self, name: str, secret: str | bytes) -> None:
        """A secret that must be nowhere."""
        self._secrets[name] = secret.encode() if isinstance(secret, str) else secret

    def seen_in(self, text: str | bytes) -> set[str]:
        """The names of the secrets that are in a text, in whatever form."""
        data = text.encode() if isinstance(text, str) else text
        return {name for name, secret in self._secrets.items() if any(form in data for form in _forms(secret))}


def _forms(secret: bytes) -> list[bytes]:
    hexadecimal = secret.hex().encode()
    return [secret, hexadecimal, hexadecimal.upper(), base64.b64encode(secret).rstrip(b"=")]


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    server = RedisServer(password="the-right-one")
    yield server
    server.close()


@pytest.fixture
def served(tmp_path: Path, redis: RedisServer, canaries: Canaries) -> Iterator[Served]:
    """A service with every secret it can have, most of them good, and all of its logs."""
    pair = Authority(tmp_path).issue("server")
    canaries.add("tls key", pair.key.read_bytes().splitlines()[1])
    password, key = os.urandom(12).hex(), os.urandom(32)
    canaries.add("redis password", password)
    canaries.add("record key", key)
    (tmp_path / "keys.toml").write_text(f'[tenants.acme]\n1 = "{base64.b64encode(key).decode()}"\n')
    (tmp_path / "keys.toml").chmod(0o600)
    server = Served(
        tmp_path,
        KVSHELF_SERVER__LOG_LEVEL="debug",
        KVSHELF_ACCESS__TOKEN_FILE=str(tmp_path / "tokens.toml"),
        KVSHELF_TLS__CERT_FILE=str(pair.cert),
        KVSHELF_TLS__KEY_FILE=str(pair.key),
        KVSHELF_POOL__REDIS_URL=redis.url_with(password),
        KVSHELF_ENCRYPTION__KEY_FILE=str(tmp_path / "keys.toml"),
    )
    server.trust(tmp_path / "ca.pem")
    yield server
    server.close()


def everything_said(client: httpx.Client, canary: str) -> list[httpx.Response]:
    """Every route, well and badly asked, with a secret in each place where a caller might put one by mistake."""
    answers = []
    for route in [*NEEDS, "GET /healthz", "GET /readyz", "GET /", "GET /nowhere", "PATCH /v1/stats"]:
        method, path = address(route)
        for kind in ("application/json", MEDIA_TYPE):
            for body in (b"", canary.encode(), b'{"keys": "%b"}' % canary.encode()):
                answers.append(client.request(method, path, content=body, headers={"Content-Type": kind}))
        for header in (canary, f"Bearer {canary}", f"Basic {canary}"):
            answers.append(client.request(method, path, headers={"Authorization": header}))
        answers.append(client.request(method, path, params={"token": canary}))
    return answers


def test_no_secret_is_seen_in_what_is_said_and_kept(served: Served, canaries: Canaries, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    good = {who: new_token(file, "--tenant", who, "--scopes", "read,write,admin") for who in ("acme", "*")}
    expired = new_token(file, "--tenant", "acme", "--days", "0.001")
    for name, token in {**good, "expired": expired}.items():
        canaries.add(f"token of {name}", token)
        canaries.add(f"secret of {name}", token.rpartition("_")[2])
        canaries.add(f"hash of {name}", hashlib.sha256(token.encode()).digest())
    wrong = f"kvs_acme_{os.urandom(32).hex()}"
    canaries.add("wrong token", wrong)
    served.start()

    said: list[str | bytes] = []
    for token in good.values():
        served.http.headers["Authorization"] = f"Bearer {token}"
        said += [repr(dict(answer.headers)) + answer.text for answer in everything_said(served.http, wrong)]
    served.http.headers["Authorization"] = f"Bearer {good['acme']}"
    payload = os.urandom(BLOCK_BYTES)
    canaries.add("payload", payload[:24])
    prompt = tokens(200, seed=int.from_bytes(os.urandom(3), "big"))
    canaries.add("token ids", prompt[:32])
    register(served.http)
    (key,) = keys_of(served.http, prompt)
    canaries.add("block key", bytes.fromhex(key))
    plan_id = plan(served.http, prompt)["plan"]["plan_id"]
    assert store(served.http, frame(key, 128, payload=payload), plan_id=plan_id)["counts"] == {"stored": 1}
    whole = file.read_text()
    file.write_text(whole.replace("scopes", wrong))
    served.http.headers["Authorization"] = f"Bearer {good['*']}"
    eventually(lambda: served.http.get("/healthz").json()["status"] == "degraded", 10)
    for path in ("/healthz", "/metrics", "/v1/stats", "/v1/overview", "/v1/namespaces", "/openapi.json"):
        said.append(served.http.get(path).content)
    served.stop()
    said.append(served.log_path.read_bytes())

    settings = {name: value for name, value in served.settings.items() if name != "KVSHELF_SERVER__LOG_LEVEL"}
    for command in (["config", "show"], ["config", "show", "--json"], ["token", "list", str(file)]):
        ended = kvshelf(*command, **settings)
        said += [ended.stdout, ended.stderr]
    file.write_text(whole)
    said += [kvshelf("token", "list", str(file)).stdout]

    assert len(said) > 400
    said += [path.read_bytes() for path in served.data_dir.rglob("*") if path.is_file()]
    assert [(names, text) for text in said if (names := canaries.seen_in(text))] == []
    assert {name.partition(" ")[0] for name in canaries.seen_in(file.read_bytes())} == {"hash"}


def test_the_search_finds_what_is_there(canaries: Canaries) -> None:
    secret = os.urandom(24)
    canaries.add("it", secret)
    for text in (secret, secret.hex(), secret.hex().upper(), base64.b64encode(secret), b"x" + secret + b"y"):
        assert canaries.seen_in(text) == {"it"}
    assert canaries.seen_in(secret[1:]) == set()
