"""An operator's commands against a service that asks for tokens over TLS, with an authority of its own."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.cli.main import main
from tests.integration.access.test_process import new_token
from tests.support.certificates import Authority
from tests.support.served import Served, eventually

REPLAY = ("replay", "sample", "--requests", "3", "--url")


@dataclass
class Guarded:
    """The service and the tokens it takes."""

    served: Served
    authority: Authority
    tokens: dict[str, str] = field(repr=False)

    @property
    def trust(self) -> tuple[str, str]:
        """Let a command trust it."""
        return "--ca-file", str(self.authority.file)

    def namespaces(self, token: str) -> list[str]:
        """The names of the namespaces that a token sees."""
        headers = {"Authorization": f"Bearer {self.tokens[token]}"}
        answer = self.served.http.get("/v1/namespaces", headers=headers)
        return [one["name"] for one in answer.json()["namespaces"]]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    authority = Authority(directory)
    pair = authority.issue("server")
    file = directory / "tokens.toml"
    tokens = {
        "operator": new_token(file, "--tenant", "*", "--scopes", "read"),
        "eraser": new_token(file, "--tenant", "*", "--scopes", "read,admin"),
        "tenant": new_token(file, "--tenant", "acme"),
        "reader": new_token(file, "--tenant", "acme", "--scopes", "read"),
    }
    served = Served(
        directory,
        KVSHELF_ACCESS__TOKEN_FILE=str(file),
        KVSHELF_TLS__CERT_FILE=str(pair.cert),
        KVSHELF_TLS__KEY_FILE=str(pair.key),
    )
    served.trust(authority.file)
    served.start()
    yield Guarded(served, authority, tokens)
    served.close()


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KVSHELF_TOKEN", "KVSHELF_PROBE_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "words", [("erase", "--namespace", "x", "--url"), ("scrub", "--status"), ("doctor",), REPLAY], ids=lambda w: w[0]
)
def test_a_command_without_a_token_says_where_it_takes_one_from(
    words: tuple[str, ...], guarded: Guarded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*words, guarded.served.url, *guarded.trust]) == 2
    said = capsys.readouterr().err
    assert "this takes a token" in said
    assert "KVSHELF_TOKEN" in said
    monkeypatch.setenv("KVSHELF_TOKEN", "kvs_none_00")
    assert main([*words, guarded.served.url, *guarded.trust]) == 2
    assert "KVSHELF_TOKEN" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [("health",), ("erase", "--class", "block", "--dry-run", "--url"), ("scrub", "--status"),
     ("doctor", "--no-probe"), REPLAY],
    ids=lambda words: words[0],
)  # fmt: skip
def test_every_command_trusts_the_authority_that_is_named_and_no_other(
    words: tuple[str, ...], guarded: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*words, guarded.served.url, "--token", guarded.tokens["tenant" if words is REPLAY else "eraser"]]
    assert main([*command, *guarded.trust]) in ((0, 1) if words[0] == "doctor" else (0,)), capsys.readouterr().err
    capsys.readouterr()
    assert main(command) in (1, 2)
    told = capsys.readouterr()
    assert "certificate" in (told.out + told.err).lower()
    assert main([*command, "--ca-file", "/nowhere"]) == 2


def doctor(guarded: Guarded, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    status = main(["doctor", guarded.served.url, *guarded.trust, "--json", *words])
    seen = capsys.readouterr()
    assert seen.err == ""
    return status, json.loads(seen.out)


def test_the_doctor_with_the_operators_token_alone_leaves_the_live_request_out(
    guarded: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    for token in ("operator", "eraser"):
        status, document = doctor(guarded, capsys, "--token", guarded.tokens[token])
        assert status < 2
        assert "bad" not in {finding["level"] for finding in document["findings"]}
        assert document["findings"]
        (note,) = document["notes"]
        assert "KVSHELF_PROBE_TOKEN, or --probe-token" in note
        assert document["steps"] == []


def test_the_doctor_with_a_tenants_token_alone_makes_the_request_and_leaves_figures_out(
    guarded: Guarded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSHELF_TOKEN", guarded.tokens["tenant"])
    for _ in range(2):
        status, document = doctor(guarded, capsys)
        assert (status, document["findings"]) == (0, [])
        assert [step["name"] for step in document["steps"]] == ["register", "hash", "store", "plan", "fetch", "release"]
        figures, stays = document["notes"]
        assert "they take the operator's in KVSHELF_TOKEN" in figures
        assert "kvshelf-doctor stays, without records" in stays
    assert [name for name in guarded.namespaces("tenant") if "doctor" in name] == ["kvshelf-doctor"]
    assert main(["doctor", guarded.served.url, *guarded.trust, "--no-probe"]) == 2
    assert "KVSHELF_TOKEN" in capsys.readouterr().err


def test_the_doctor_with_both_tokens_does_all_and_cleans_up_where_it_may(
    guarded: Guarded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSHELF_PROBE_TOKEN", guarded.tokens["tenant"])
    status, document = doctor(guarded, capsys, "--token", guarded.tokens["eraser"])
    assert status < 2
    assert (len(document["steps"]), document["notes"]) == (6, [])
    eventually(lambda: not [name for name in guarded.namespaces("tenant") if name.startswith("kvshelf-doctor-")], 10)
    monkeypatch.setenv("KVSHELF_PROBE_TOKEN", guarded.tokens["reader"])
    assert main(["doctor", guarded.served.url, *guarded.trust, "--token", guarded.tokens["eraser"]]) == 2
    assert "KVSHELF_PROBE_TOKEN" in capsys.readouterr().err


def test_a_replay_cleans_up_with_the_token_and_the_authority_it_was_given(
    guarded: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    before = guarded.namespaces("operator")
    command = [*REPLAY, guarded.served.url, *guarded.trust, "--token"]
    assert main([*command, guarded.tokens["tenant"]]) == 0
    assert "lacks the scope 'admin'" in capsys.readouterr().err, "it was asked over TLS, with the token"
    assert len(guarded.namespaces("operator")) == len(before) + 1


@pytest.mark.parametrize("asks_for_certificates", [False, True])
def test_health_asks_the_service_that_its_settings_describe_over_tls_too(
    asks_for_certificates: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server", "kvshelf-0.kvshelf")  # No name of it is of this machine.
    served = Served(
        tmp_path,
        KVSHELF_TLS__CERT_FILE=str(pair.cert),
        KVSHELF_TLS__KEY_FILE=str(pair.key),
        **({"KVSHELF_TLS__CLIENT_CA_FILE": str(authority.file)} if asks_for_certificates else {}),
    )
    try:
        with pytest.raises(httpx.ConnectError, match="certificate"):
            served.start()
        config = tmp_path / "kvshelf.toml"
        tls = "".join(
            f"{name.removeprefix('KVSHELF_TLS__').lower()} = '{value}'\n"
            for name, value in served.settings.items()
            if name.startswith("KVSHELF_TLS__")
        )
        config.write_text(f"[server]\nport = {served.port}\n[tls]\n{tls}")
        assert main(["health", "--config", str(config)]) == 0, capsys.readouterr().err
        monkeypatch.setenv("KVSHELF_CONFIG", str(config))
        assert main(["health", "--json"]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"status": "ok", "causes": []}
        monkeypatch.setenv("KVSHELF_TLS__CERT_FILE", str(authority.issue("other").cert))
        monkeypatch.delenv("KVSHELF_TLS__CLIENT_CA_FILE", raising=False)
        assert main(["health"]) in (1, 2), "another's certificate is not its own"
        monkeypatch.setenv("KVSHELF_SERVER__PORT", "0")
        assert main(["health"]) == 2
        assert "server.port = 0" in capsys.readouterr().err
    finally:
        served.close()
