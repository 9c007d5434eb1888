"""The README tells the truth: every command it shows runs, and its example works."""

import json
import re
import shlex
from collections.abc import Iterator

import pytest

from tests.integration.process.conftest import Serve
from tests.support.engine import metric, plan, release, tokens
from tests.support.pages import ROOT, fenced, run_examples
from tests.support.served import Served, kvshelf

README = ROOT / "README.md"
URL = "http://127.0.0.1:8710"


COMMANDS = [line[2:] for block in fenced(README, "console") for line in block.splitlines() if line.startswith("$ ")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("readme"))
    made.start()
    yield made
    assert made.stop() == 0
    made.close()


def test_there_are_commands_of_every_kind() -> None:
    programs = {tuple(command.split()[:2]) for command in COMMANDS}
    assert programs >= {
        ("make", "demo"), ("make", "test"), ("kvshelf", "serve"), ("kvshelf", "replay"), ("kvshelf", "resume"),
        ("kvshelf", "profile"),
    }  # fmt: skip
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    assert {name for program, name in programs if program == "make"} <= targets


def test_serve_says_what_is_shown(serve: Serve) -> None:
    (block,) = [block for block in fenced(README, "console") if block.startswith("$ kvshelf serve")]
    command, line = block.splitlines()
    (_, _, option, directory) = shlex.split(command[2:])
    assert option == "--data-dir"
    served = serve()
    shown = line.replace(URL, served.url).replace(directory, str(served.data_dir))
    assert served.server.said == shown


@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if not command.startswith(("make ", "kvshelf serve "))]
)
def test_a_command_runs(command: str, served: Served) -> None:
    """As it is shown, but for where the service is, and a whole replay of the sample is cut short."""
    program, *arguments = shlex.split(command)
    assert program == "kvshelf"
    if arguments[0] == "replay":
        arguments += ["--url", served.url]
        arguments += [] if "--sessions" in arguments else ["--requests", "60"]
    ended = kvshelf(*arguments)
    assert ended.returncode == 0, ended.stderr
    if "--json" in arguments:
        assert json.loads(ended.stdout)
    else:
        assert len(ended.stdout.splitlines()) > 3


def test_the_example_runs(served: Served) -> None:
    before = metric(served.http, "kvshelf_requests_total")
    for _ in range(2):
        ended = run_examples(README, **{URL: served.url})
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert metric(served.http, "kvshelf_requests_total") == before + 2
    planned = plan(served.http, tokens(1100), "readme")
    assert (planned["hit_tokens"], planned["plan"]["mode"], planned["plan"]["exact"]) == (896, "snapshot", True)
    assert planned["fallback"]["mode"] == "bounded_replay"
    release(served.http, planned)
