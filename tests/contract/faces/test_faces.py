"""One contract over all faces, both clients, with and without TLS and tokens: nobody sees a difference.

Every scenario is played over every way to reach a service, and what was seen is compared field by field with what
``Client`` sees over plain REST.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import pytest

from tests.contract.faces.callers import CLIENTS
from tests.contract.faces.observed import with_ids_in_order
from tests.contract.faces.scenarios import EVERYWHERE, WITH_TOKENS
from tests.contract.faces.stage import FACES, staged

Scenario = Callable[..., Any]


class Way(NamedTuple):
    """A way to reach a service."""

    face: str
    client: str
    is_guarded: bool

    def __str__(self) -> str:
        return f"{self.face}-{self.client}-{'tls+tokens' if self.is_guarded else 'plain'}"


WAYS = [Way(*way) for way in product(FACES, CLIENTS, (False, True))]
CASES = [(way, one) for way in WAYS for one in EVERYWHERE + (WITH_TOKENS if way.is_guarded else ())]


class Theatre:
    """Plays all scenarios of a way in their order, once, when the first of them is asked for."""

    def __init__(self, directories: pytest.TempPathFactory) -> None:
        self._directories = directories

    @cache  # noqa: B019 - it lives as long as its module's tests
    def seen(self, way: Way) -> dict[str, Any]:
        """What each scenario saw, or what it ended with."""
        seen: dict[str, Any] = {}
        directory = self._directories.mktemp(str(way))
        with ExitStack() as closing:
            stage = closing.enter_context(staged(directory, way.face, way.client, is_guarded=way.is_guarded))
            for scenario in EVERYWHERE + (WITH_TOKENS if way.is_guarded else ()):
                try:
                    seen[scenario.__name__] = with_ids_in_order(scenario(stage))
                except Exception as error:  # noqa: BLE001 - it is raised where its scenario is asked for
                    seen[scenario.__name__] = error
        return seen


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    return Theatre(tmp_path_factory)  # type: ignore[return-value]


@pytest.mark.parametrize(("way", "scenario"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_no_difference_is_seen(theatre: Theatre, way: Way, scenario: Scenario) -> None:
    seen = theatre.seen(way)[scenario.__name__]
    if isinstance(seen, Exception):
        raise seen
    expected = theatre.seen(Way("rest", "Client", way.is_guarded))[scenario.__name__]
    assert seen == expected
