"""A stop is clean: what is under way is finished, what is new is refused, what was stored is all there."""

import http.client
import signal
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from kvshelf_client.frames import MEDIA_TYPE
from storage.clock import SystemClock
from storage.ssd import SsdTier
from tests.integration.process.conftest import Serve
from tests.support.engine import BLOCK, fetch, frame, keys_of, plan, register, release, split, store, tokens
from tests.support.observers import RecordingObserver
from tests.support.served import SMALL_BUDGET_BYTES, Served, eventually

LARGE = 2048
"""Bytes a token at which a fetch of ``LARGE_BLOCKS`` is far more than sockets hold: 256 KiB a block."""
LARGE_BLOCKS = 96
LARGE_PROMPT = tokens(LARGE_BLOCKS * BLOCK + 200)


def store_large(http: httpx.Client) -> list[str]:
    """Store the large prompt; returns its keys."""
    register(http, bytes_per_token=LARGE)
    keys = keys_of(http, LARGE_PROMPT)[:LARGE_BLOCKS]
    for start in range(0, LARGE_BLOCKS, 32):
        store(http, b"".join(large_frame(key, start + number) for number, key in enumerate(keys[start : start + 32])))
    return keys


def large_frame(key: str, number: int) -> bytes:
    return frame(key, (number + 1) * BLOCK, payload=bytes.fromhex(key) * (LARGE * BLOCK // 32))


class SlowFetch:
    """A fetch whose reader has read the head of the answer and then stopped reading."""

    def __init__(self, served: Served, lease_id: str) -> None:
        parts = urlsplit(served.url)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        self._socket.connect((parts.hostname, parts.port))
        self._socket.settimeout(20)
        self._socket.sendall(f"GET /v1/leases/{lease_id}/fetch HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self._response = http.client.HTTPResponse(self._socket)
        self._response.begin()
        self.length_bytes = self._response.length or 0

    def read_all(self) -> bytes:
        """The rest of the answer; raises IncompleteRead when it is cut off."""
        return self._response.read()

    def close(self) -> None:
        self._response.close()
        self._socket.close()


@pytest.fixture
def slow(serve: Serve) -> Iterator[tuple[Served, SlowFetch, list[str]]]:
    """A service with a large fetch under way whose reader is slow."""
    served = serve(KVSHELF_SERVER__DRAIN_SECONDS="15")
    keys = store_large(served.http)
    fetching = SlowFetch(served, plan(served.http, LARGE_PROMPT)["lease"]["lease_id"])
    yield served, fetching, keys
    fetching.close()


def stopping(served: Served) -> httpx.Response:
    """The answer of ``/readyz`` once the stop has begun."""
    return eventually(
        lambda: (answer := served.http.get("/readyz")).status_code == 503 and answer, 5
    ) or httpx.Response(0)


def let_it_arrive(served: Served) -> None:
    """What was sent to the service before this has been received by it afterwards: it has answered others since."""
    for _ in range(3):
        assert served.http.get("/readyz").status_code == 204


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_fetch_under_way_is_finished(slow: tuple[Served, SlowFetch, list[str]], number: int) -> None:
    served, fetching, keys = slow
    served.signal(number)
    assert stopping(served).headers["content-type"] == "application/problem+json"
    with httpx.Client(base_url=served.url) as fresh:
        refused = fresh.post("/v1/namespaces/ns/plan", content=tokens(1))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "stopping" in refused.json()["detail"]
        assert fresh.get("/healthz").status_code == fresh.get("/metrics").status_code == 200
    assert served.server.process.poll() is None
    received = split(fetching.read_all())
    assert [header.key.hex() for header, _ in received] == keys
    assert all(header.miss is None and payload == header.key * (LARGE * BLOCK // 32) for header, payload in received)
    assert served.wait() == 0
    assert [line["event"] for line in served.log()] == ["serving", "stopped"]


def test_what_was_planned_before_the_stop_can_still_be_fetched(serve: Serve) -> None:
    served = serve()
    register(served.http)
    prompt = tokens(20 * BLOCK + 129)
    keys = keys_of(served.http, prompt)[:20]
    store(served.http, b"".join(frame(key, (number + 1) * BLOCK) for number, key in enumerate(keys)))
    planned = plan(served.http, prompt)
    served.signal(signal.SIGTERM)
    stopping(served)
    assert served.http.post("/v1/namespaces/ns/plan", content=prompt).status_code == 503
    assert served.http.post("/v1/namespaces/ns/store", content=b"").status_code == 503
    assert [header.key.hex() for header, _ in fetch(served.http, planned)] == keys
    release(served.http, planned)
    assert served.wait(5) == 0


def test_a_plan_that_nobody_fetches_keeps_nobody_waiting(serve: Serve) -> None:
    served = serve(KVSHELF_SERVER__DRAIN_SECONDS="15")
    register(served.http)
    prompt = tokens(4 * BLOCK)
    keys = keys_of(served.http, prompt)[:3]
    store(served.http, b"".join(frame(key, (number + 1) * BLOCK) for number, key in enumerate(keys)))
    assert plan(served.http, prompt)["lease"]["records"] > 0
    served.signal(signal.SIGTERM)
    assert served.wait(5) == 0


def test_a_second_signal_waits_for_nobody(slow: tuple[Served, SlowFetch, list[str]]) -> None:
    served, fetching, _ = slow
    served.signal(signal.SIGTERM)
    stopping(served)
    served.signal(signal.SIGTERM)
    assert served.wait(5) == 0
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        fetching.read_all()
    events = [line["event"] for line in served.log()]
    assert events[:3] == ["serving", "stop_waits_no_longer", "request_cut_off"]
    assert events[-1] == "stopped"


def test_the_wait_has_an_end(serve: Serve) -> None:
    served = serve(KVSHELF_SERVER__DRAIN_SECONDS="0.5")
    store_large(served.http)
    fetching = SlowFetch(served, plan(served.http, LARGE_PROMPT)["lease"]["lease_id"])
    served.signal(signal.SIGTERM)
    assert served.wait(5) == 0
    fetching.close()
    assert "stop_waits_no_longer" in [line["event"] for line in served.log()]


def test_a_store_under_way_is_finished_and_everything_is_known_afterwards(serve: Serve) -> None:
    served = serve()
    register(served.http)
    prompt = tokens(200 * BLOCK + 129)
    keys = keys_of(served.http, prompt)[:200]
    first, last = (
        b"".join(frame(key, (start + number + 1) * BLOCK) for number, key in enumerate(keys[start : start + 100]))
        for start in (0, 100)
    )

    def body() -> Iterator[bytes]:
        yield first[:5000]
        let_it_arrive(served)
        served.signal(signal.SIGTERM)
        stopping(served)
        yield first[5000:]
        yield last

    with httpx.Client(base_url=served.url, timeout=30) as storing:
        answer = storing.post("/v1/namespaces/ns/store", content=body(), headers={"content-type": MEDIA_TYPE})
    assert (answer.status_code, answer.json()["counts"]) == (200, {"stored": 200})
    assert served.wait() == 0

    observer = RecordingObserver()
    tier = SsdTier(
        served.data_dir, clock=SystemClock(), ttl_seconds=3600, budget_bytes=SMALL_BUDGET_BYTES, observer=observer
    )
    tier.check_integrity()
    usage = tier.usage()
    tier.close()
    assert (usage.records, usage.live_bytes) == (200, 200 * BLOCK)
    assert not observer.faults
    assert not observer.evicted_records

    served.start()
    planned = plan(served.http, prompt)
    assert planned["hit_tokens"] == 200 * BLOCK
    assert [header.key.hex() for header, _ in fetch(served.http, planned)] == keys
    release(served.http, planned)
    assert served.stop() == 0


def test_a_store_that_is_too_slow_is_told_so(serve: Serve) -> None:
    served = serve(KVSHELF_SERVER__DRAIN_SECONDS="0.3")
    register(served.http)
    parts = urlsplit(served.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    connection.putrequest("POST", "/v1/namespaces/ns/store")
    connection.putheader("content-type", MEDIA_TYPE)
    connection.putheader("content-length", "100000")
    connection.endheaders(b"K")
    let_it_arrive(served)
    served.signal(signal.SIGTERM)
    answer = connection.getresponse()
    assert answer.status == 503
    assert b"stopping" in answer.read()
    connection.close()
    assert served.wait(5) == 0


def test_a_stop_ends_leases_and_idle_connections_at_once(serve: Serve) -> None:
    served = serve()
    register(served.http)
    plan(served.http, tokens(1000))
    clock = SystemClock()
    started = clock.monotonic()
    served.signal(signal.SIGTERM)
    assert served.wait() == 0
    assert clock.monotonic() - started < 5
