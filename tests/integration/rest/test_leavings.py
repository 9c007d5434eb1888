"""A request that is over leaves nothing in memory: what hangs on a cycle stays until a full collection, for half a
minute and longer, and takes along whatever it holds.
"""

import gc
from collections.abc import Iterator

import httpx
import pytest

from kvshelf_client.frames import FrameAssembler
from service.faces.uploads import Intake
from service.rest.wire import Wire
from tests.support.engine import BLOCK, BLOCK_BYTES, frame, keys_of, payload_of, register, store, tokens
from tests.support.served import eventually

REQUESTS = 20
SOON = 5.0


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(kind: type) -> int:
    return sum(type(found) is kind for found in gc.get_objects())


def test_the_state_of_a_request_goes_with_it(http: httpx.Client) -> None:
    """The connection has that of the last one."""
    for _ in range(REQUESTS):
        assert http.get("/healthz").status_code == 200
    eventually(lambda: alive(Wire) <= 1, SOON)


def test_the_payloads_of_a_store_go_with_it(http: httpx.Client) -> None:
    """The last one as well, which its assembler has put together."""
    register(http)
    (key,) = keys_of(http, tokens(BLOCK))
    for _ in range(REQUESTS):
        assert sum(store(http, frame(key, BLOCK, payload=payload_of(key, BLOCK_BYTES)))["counts"].values()) == 1
    eventually(lambda: not alive(Intake) and not alive(FrameAssembler), SOON)
