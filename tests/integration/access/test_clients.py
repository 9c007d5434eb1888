"""The shipped client and the commands against a service that asks for tokens over TLS."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvshelf_client.client import Client
from kvshelf_client.errors import ServiceError
from kvshelf_client.requests import NamespaceSpec
from kvshelf_client.transport import Tls
from tests.integration.access.test_process import new_token
from tests.support.certificates import Authority
from tests.support.served import Served, kvshelf

SPEC = NamespaceSpec(None, "m", "1", "deepseek-v4.1-flash/fp4", bytes_per_token=1)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def served(tmp_path: Path, authority: Authority) -> Iterator[Served]:
    """Serves over TLS, HTTP and gRPC, with the tokens of ``tokens.toml``."""
    pair = authority.issue("server")
    server = Served(
        tmp_path,
        "--grpc-port",
        "0",
        KVSHELF_ACCESS__TOKEN_FILE=str(tmp_path / "tokens.toml"),
        KVSHELF_TLS__CERT_FILE=str(pair.cert),
        KVSHELF_TLS__KEY_FILE=str(pair.key),
    )
    server.trust(authority.file)
    yield server
    server.close()


def test_a_replay_with_a_token_over_tls(served: Served, authority: Authority, tmp_path: Path) -> None:
    token = new_token(tmp_path / "tokens.toml", "--tenant", "acme")
    served.start()
    command = ["replay", "sample", "--requests", "5", "--url", served.url, "--json"]
    trust = ["--ca-file", str(authority.file)]
    refused = kvshelf(*command, *trust)
    assert refused.returncode == 2
    assert "this takes a token" in refused.stderr
    assert "KVSHELF_TOKEN" in refused.stderr
    assert kvshelf(*command, KVSHELF_TOKEN=token).returncode == 1, "nobody vouches for the certificate"
    for options, variables in (([*trust, "--token", token], {}), (trust, {"KVSHELF_TOKEN": token})):
        ended = kvshelf(*command, *options, **variables)
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout)["complete"] is True
    assert kvshelf(*command, "--ca-file", str(tmp_path / "none")).returncode == 2


def test_the_client_asks_as_its_tokens_tenant(served: Served, authority: Authority, tmp_path: Path) -> None:
    tokens = {tenant: new_token(tmp_path / "tokens.toml", "--tenant", tenant) for tenant in ("acme", "initech")}
    served.start()
    tls = Tls(ca_file=str(authority.file))
    urls = [served.url, *(str(line["grpc"]) for line in served.log() if line["event"] == "serving")]
    assert [url.partition(":")[0] for url in urls] == ["https", "grpcs"]
    for url in urls:
        fingerprints = set()
        for tenant, token in tokens.items():
            with Client(url, strict=True, token=token, tls=tls, budget_seconds=20) as client:
                namespace = client.register("same", SPEC)
                assert namespace is not None
                fingerprints.add(namespace.fingerprint)
                other = next(name for name in tokens if name != tenant)
                with pytest.raises(ServiceError) as foreign:
                    client.register("mine", NamespaceSpec(other, "m", "1", "deepseek-v4.1-flash/fp4"))
                assert foreign.value.status == 403
        assert len(fingerprints) == 2
        with Client(url, strict=True, tls=tls, budget_seconds=20) as stranger, pytest.raises(ServiceError) as denied:
            stranger.register("same", SPEC)
        assert denied.value.status == 401
