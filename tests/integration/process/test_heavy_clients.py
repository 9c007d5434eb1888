"""Bad and heavy clients of a real service: afterwards memory, descriptors and leases are where they were."""

import socket
from contextlib import ExitStack

import httpx

from kvshelf_client.frames import MEDIA_TYPE
from tests.integration.process.conftest import Serve
from tests.support.engine import BLOCK, blocks, keys_of, plan, register, release, serve_cold, store, tokens
from tests.support.processes import descriptors, resident_bytes
from tests.support.served import Served, eventually

CONNECTIONS = 1000
SLACK_BYTES = 24 << 20
"""What an allocator keeps for the next time: far below what a thousand connections or a million hashes take."""


def abuse(served: Served, frames: bytes) -> None:
    """Everything at once that no client should do."""
    store = f"POST /v1/namespaces/ns/store HTTP/1.1\r\nhost: localhost\r\ncontent-type: {MEDIA_TYPE}\r\n"
    with ExitStack() as stack:
        for number in range(CONNECTIONS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=20))
            length = f"content-length: {len(frames)}\r\n\r\n".encode()
            sent = (
                b"GET /v1/le",
                store.encode() + length + frames[: number % len(frames)],
                store.encode() + length + frames[::-1],
                b"GET /v1/stats HTTP/1.1\r\nhost: localhost\r\n\r\n",
            )[number % 4]
            connection.sendall(sent)
        assert served.http.get("/healthz").status_code == 200
    octets = {"content-type": "application/vnd.kvshelf.hashes.v1"}
    hashes = bytes(32) * 1_000_000
    answer = served.http.post("/v1/namespaces/ns/plan?prompt_tokens=1000", content=hashes, headers=octets)
    assert answer.status_code == 413
    assert "limits.max_prompt_blocks" in answer.json()["detail"]
    for _ in range(20):
        planned = plan(served.http, tokens(8 * BLOCK))
        with httpx.stream("GET", f"{served.url}/v1/leases/{planned['lease']['lease_id']}/fetch") as download:
            assert download.status_code == 200
        release(served.http, planned)


def behave(served: Served, frames: bytes) -> None:
    """The same decently: what is there after it once is no harm of anybody's."""
    for _ in range(20):
        store(served.http, frames)
        planned = plan(served.http, tokens(8 * BLOCK))
        assert served.http.get(f"/v1/leases/{planned['lease']['lease_id']}/fetch").status_code == 200
        release(served.http, planned)


def test_all_is_given_back(serve: Serve) -> None:
    served = serve(KVSHELF_LIMITS__STALL_SECONDS="1")
    register(served.http)
    serve_cold(served.http, tokens(8 * BLOCK))
    frames = blocks(keys_of(served.http, tokens(8 * BLOCK, 1)))
    behave(served, frames)
    descriptors_before, bytes_before = descriptors(served), resident_bytes(served)
    for _ in range(3):
        abuse(served, frames)
        eventually(lambda: descriptors(served) <= descriptors_before + 2, 10)
    assert resident_bytes(served) < bytes_before + SLACK_BYTES
    assert served.http.get("/v1/stats").json()["leases"] == {"count": 0, "records": 0}
    assert not [line for line in served.log() if line["event"] == "unexpected_error"]
