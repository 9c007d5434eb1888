"""Fixtures every kind of test may use."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.redis_server import RedisServer, running_redis_url

# How long an example takes says more about the neighbours on the machine than about the code.
settings.register_profile("kvshelf", deadline=None)
settings.load_profile("kvshelf")


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_open() -> Iterator[None]:
    """Collect what a file's tests left behind, so that a socket left open is blamed on them and not on a later file."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The URL of a real Redis, not to be stopped and shared with other tests: use a key prefix of your own.

    The one that ``KVSHELF_TEST_REDIS_URL`` names, else a private one.
    """
    running = running_redis_url()
    if running:
        yield running
        return
    server = RedisServer()
    yield server.url
    server.close()
