"""Every test here has a service in a process of its own, and prompts that are stored there."""

from collections.abc import Iterator

import pytest

from tests.support.prompts import Prompts
from tests.support.served import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("clients"))
    made.start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def prompts(served: Served) -> Prompts:
    return Prompts(served.url, count=24, blocks=6)
