"""The image's recipe: accepted by the linter, nobody's root, and its command lines are commands of this tree."""

import json
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.deployed import DEPLOY, KVSHELF, command_of, inherited, started, url_said_by

ROOT = DEPLOY.parent
RECIPE = DEPLOY / "docker" / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Every instruction and its arguments, continued lines joined, comments left out."""
    lines = [line for line in RECIPE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined)]


def last(name: str) -> str:
    return [rest for word, rest in instructions() if word == name][-1]


def test_the_linter_accepts_it() -> None:
    checked = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), "--no-color", RECIPE], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout) == (0, "")


def test_it_runs_as_nobody_special_and_in_two_stages() -> None:
    user, _, group = last("USER").partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert [word for word, _ in instructions()].count("FROM") == 2
    assert "ADD" not in {word for word, _ in instructions()}


def test_what_it_copies_is_there_and_sent_to_the_builder() -> None:
    sent = [
        line[1:] for line in RECIPE.with_name("Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"
    ]
    for word, rest in instructions():
        if word != "COPY" or rest.startswith("--from"):
            continue
        for source in rest.split()[:-1]:
            assert (ROOT / source).exists(), f"{source} is copied, and is not there"
            assert any(fnmatch(source, pattern) for pattern in sent), f"{source} is copied, and not sent to the builder"


def test_what_it_installs_is_offered() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (install,) = [rest for word, rest in instructions() if word == "RUN" and "pip install" in rest]
    extras = install.split("'.[")[1].split("]")[0].split(",")
    assert set(extras) <= set(project["optional-dependencies"])


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        "KVSHELF_STORE__DATA_DIR": str(tmp_path / "data"),
        "KVSHELF_STORE__BUDGET_BYTES": str(64 << 20),
        "KVSHELF_SERVER__PORT": "0",
    }


def test_its_command_serves_and_its_check_says_so_over_tls_too(environment: dict[str, str], tmp_path: Path) -> None:
    command = command_of([*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))], {})
    check = command_of(json.loads(last("HEALTHCHECK").partition("CMD ")[2]), {})
    assert check[-1:] == ["health"], "an address would be without TLS, or without the port that is set"
    pair = Authority(tmp_path).issue("server", "kvshelf.example")
    files = {"KVSHELF_TLS__CERT_FILE": str(pair.cert), "KVSHELF_TLS__KEY_FILE": str(pair.key)}
    for tls in ({}, files):
        with started(command, environment | tls) as process:
            settings = environment | tls | {"KVSHELF_SERVER__PORT": url_said_by(process).rpartition(":")[2]}
            healthy = subprocess.run(check, env=inherited(settings), capture_output=True, text=True, check=False)
            assert (healthy.returncode, healthy.stdout, healthy.stderr) == (0, "ok\n", "")
            process.terminate()
            assert process.wait(30) == 0
            gone = subprocess.run(check, env=inherited(settings), capture_output=True, text=True, check=False)
            assert gone.returncode == 1
            assert "is the service running there?" in gone.stderr


def test_the_command_that_is_checked_is_a_command() -> None:
    helped = subprocess.run([*KVSHELF, "health", "--help"], capture_output=True, text=True, check=True)
    assert "exit status" in helped.stdout
