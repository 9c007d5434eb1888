"""Services in processes of their own. Whatever a test leaves running is killed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.redis_server import RedisServer
from tests.support.served import Served

Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts ``kvshelf serve`` with options and settings, on one data directory a test."""
    with ExitStack() as closing:

        def start(*options: str, **settings: str) -> Served:
            served = Served(tmp_path, *options, **settings)
            closing.callback(served.close)
            served.start()
            return served

        yield start


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """A private Redis that a test may stop and freeze."""
    server = RedisServer()
    yield server
    server.close()
