"""The pages tell the truth: their examples run as they are shown, and their links lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.process.conftest import Serve
from tests.support.engine import metric
from tests.support.pages import PAGES, ROOT, fenced, run_examples
from tests.support.served import Served

REST, SECOND = "127.0.0.1:8710", "127.0.0.1:8720"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("docs"))
    made.start()
    yield made
    assert made.stop() == 0
    made.close()


def test_every_page_with_examples_has_a_test_that_runs_them() -> None:
    """This one, ``test_readme.py``, ``test_tracing.py``, and ``test_docs.py`` of the faces gRPC and local."""
    with_examples = [page.name for page in PAGES if fenced(page, "python")]
    assert with_examples == ["README.md", "client.md", "grpc.md", "local-path.md", "nodes.md", "tracing.md"]


def test_the_quick_start_does_what_it_says(served: Served) -> None:
    ended = run_examples(ROOT / "docs/client.md", **{REST: served.url.removeprefix("http://")})
    assert (ended.returncode, ended.stderr) == (0, "")
    *lines, counters = ended.stdout.splitlines()
    assert lines == [
        "4 keys; 128 bytes a block",
        "cold: run [0, 1000), keep what is below 0",
        "snapshot: run [896, 1200), keep what is below 896",
        "bounded_replay 6 records",
    ]
    assert "'release': {'ok': 2}" in counters
    assert metric(served.http, "kvshelf_requests_total") == 12, "every request it makes is released"


def test_several_nodes_do_what_the_page_says(served: Served, serve: Serve) -> None:
    places = {REST: served.url.removeprefix("http://"), SECOND: serve().url.removeprefix("http://")}
    ended = run_examples(ROOT / "docs/nodes.md", **places)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == ["cold True", "bounded_replay 896 tokens on that node", "{'first': 1}"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    assert not [link for link in links if "://" not in link and not (page.parent / link).exists()]
