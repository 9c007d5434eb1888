"""How much is let in: excess is answered at once, a source has its share, and all is given back."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from kvshelf_client.frames import MEDIA_TYPE
from service.faces.admission import Admission, Allowance
from service.faces.problems import ProblemError
from service.metrics import Metrics
from service.settings import SettingsError, load_settings
from service.settings.limits import LimitSettings
from storage.clock import ManualClock
from tests.support.engine import BLOCK, blocks, frame, keys_of, metric, register, tokens
from tests.support.live import Live, live
from tests.support.served import eventually
from tests.support.service import make_parts

LIMITS = {
    "max_connections": 20,
    "max_requests": 4,
    "max_snapshot_bytes": 65_536,
    "max_body_bytes": 1 << 20,
}
HALF = (
    b"PUT /v1/namespaces/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
)


@pytest.fixture
def face(tmp_path: Path) -> Iterator[Live]:
    settings = load_settings(environment={}, flags={"limits": LIMITS})
    parts = make_parts(tmp_path, ManualClock(), settings=settings)
    with live(parts) as running:
        yield running
    parts.close()


def connect(face: Live, stack: ExitStack, source: str) -> socket.socket:
    """A connection from a loopback address of choice."""
    address = urlsplit(face.url)
    place = (address.hostname or "", address.port or 0)
    return stack.enter_context(socket.create_connection(place, timeout=20, source_address=(source, 0)))


def hold_requests(face: Live, stack: ExitStack, source: str, count: int) -> None:
    """Leave so many requests under way."""
    already = face.context.under_way
    for _ in range(count):
        connect(face, stack, source).sendall(HALF)
    eventually(lambda: face.context.under_way == already + count, 5)


def client(face: Live, stack: ExitStack, source: str) -> httpx.Client:
    transport = httpx.HTTPTransport(local_address=source)
    return stack.enter_context(httpx.Client(base_url=face.url, transport=transport, timeout=20))


def test_excess_is_refused_at_once_and_others_have_their_share(face: Live) -> None:
    with ExitStack() as stack:
        hold_requests(face, stack, "127.0.0.1", 2)
        flooding = client(face, stack, "127.0.0.1")
        refused = flooding.get("/v1/leases/x/fetch")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        other = client(face, stack, "127.0.0.2")
        assert other.get("/v1/leases/x/fetch").status_code == 404
        hold_requests(face, stack, "127.0.0.2", 2)
        third = client(face, stack, "127.0.0.3").get("/v1/leases/x/fetch")
        assert (third.status_code, third.headers["retry-after"]) == (503, "1")
        assert flooding.get("/healthz").status_code == 200
        assert metric(flooding, 'kvshelf_refused_requests_total{reason="share"}') == 1
        assert metric(flooding, 'kvshelf_refused_requests_total{reason="busy"}') == 1
    with ExitStack() as stack:
        eventually(lambda: face.context.under_way == 0, 5)
        hold_requests(face, stack, "127.0.0.1", 2)


def test_connections_are_bounded_and_given_back(face: Live) -> None:
    with ExitStack() as stack:
        held = [connect(face, stack, "127.0.0.1") for _ in range(10)]
        beyond = connect(face, stack, "127.0.0.1").recv(4096)
        assert beyond.startswith(b"HTTP/1.1 429 ")
        assert b"retry-after: 1\r\n" in beyond
        other = client(face, stack, "127.0.0.2")
        assert other.get("/healthz").status_code == 200
        assert metric(other, 'kvshelf_refused_requests_total{reason="connections"}') == 1
        held[0].close()
        eventually(lambda: face.context.admission.connections.lacks("127.0.0.1") is None, 5)
        assert client(face, stack, "127.0.0.1").get("/healthz").status_code == 200


def test_a_store_is_as_long_as_it_likes(face: Live, http: httpx.Client) -> None:
    """It has twice the bytes that may be in memory."""
    register(http, bytes_per_token=256)
    keys = keys_of(http, tokens(2 * 32 * BLOCK))
    frames = b"".join(frame(key, (number + 1) * BLOCK, payload=bytes(256 * BLOCK)) for number, key in enumerate(keys))
    assert len(frames) > 2 << 20
    answer = http.post("/v1/namespaces/ns/store", content=frames, headers={"content-type": MEDIA_TYPE})
    assert answer.json()["counts"] == {"stored": 64}


def test_a_prompt_that_finds_no_room_is_told_to_come_again(face: Live, http: httpx.Client) -> None:
    register(http)
    octets = {"content-type": "application/octet-stream"}
    answer = http.post("/v1/namespaces/ns/plan", content=tokens(200_000), headers=octets)
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"
    assert http.post("/v1/namespaces/ns/plan", content=tokens(100_000), headers=octets).status_code == 200
    assert metric(http, 'kvshelf_refused_requests_total{reason="bytes"}') == 1


def test_an_aborted_upload_leaves_no_bytes(face: Live, http: httpx.Client) -> None:
    register(http)
    frames = blocks(keys_of(http, tokens(8 * BLOCK)))
    head = f"POST /v1/namespaces/ns/store HTTP/1.1\r\nhost: localhost\r\ncontent-type: {MEDIA_TYPE}\r\n"
    for _ in range(300):
        with ExitStack() as stack:
            connection = connect(face, stack, "127.0.0.1")
            connection.sendall(f"{head}content-length: {len(frames)}\r\n\r\n".encode() + frames[:-1])
    eventually(lambda: face.context.under_way == 0, 5)
    assert not face.context.admission.is_scarce("127.0.0.1")


def test_bytes_wait_for_room_and_then_no_longer() -> None:
    limits = LimitSettings(max_snapshot_bytes=1, max_body_bytes=1 << 20)
    metrics = Metrics("test")
    most = 1 << 19

    async def story() -> None:
        admission = Admission(limits, metrics)
        with admission.admit("a") as first, admission.admit("a") as second:
            await first.hold(most)
            waiting = asyncio.ensure_future(second.hold(1000))
            await asyncio.sleep(0)
            assert not waiting.done()
            first.release(1000)
            await asyncio.wait_for(waiting, 1)
            with pytest.raises(ProblemError) as refused:
                await second.hold(1)
            assert refused.value.status == 429
        with admission.admit("a") as third:
            await asyncio.wait_for(third.hold(most), 1)

    asyncio.run(story())


def test_a_source_that_has_nothing_is_forgotten() -> None:
    allowance = Allowance(4, 0.5)
    for number in range(10):
        allowance.take(str(number))
        allowance.give(str(number))
    assert allowance._by_source == {}
    allowance.take("a", 2)
    assert (allowance.lacks("a"), allowance.lacks("b", 2), allowance.is_scarce("a")) == (429, None, True)
    allowance.take("b", 2)
    assert allowance.lacks("c") == 503


def test_the_bytes_in_memory_must_have_room_for_a_snapshot() -> None:
    with pytest.raises(SettingsError, match="max_body_bytes"):
        load_settings(environment={}, flags={"limits": {"max_snapshot_bytes": 1 << 40}})
