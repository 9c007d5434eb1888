"""Clients that leave things where they are: half a head, half a body, an answer that they do not read."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from service.settings import load_settings
from storage.clock import ManualClock, SystemClock
from tests.support.engine import BLOCK, blocks, fetch, frame, keys_of, metric, plan, register, store, tokens
from tests.support.live import Live, live
from tests.support.served import eventually
from tests.support.service import make_parts

STALL_SECONDS = 0.4
SOON = 5.0


@pytest.fixture
def face(tmp_path: Path) -> Iterator[Live]:
    settings = load_settings(environment={}, flags={"limits": {"stall_seconds": STALL_SECONDS}})
    parts = make_parts(tmp_path, ManualClock(), settings=settings)
    with live(parts) as running:
        yield running
    parts.close()


@contextmanager
def connected(face: Live, receive_bytes: int | None = None) -> Iterator[socket.socket]:
    """A bare connection; with a small buffer where nobody is to read."""
    address = urlsplit(face.url)
    with socket.socket() as connection:
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.settimeout(20)
        connection.connect((address.hostname or "", address.port or 0))
        yield connection


def rest_of(connection: socket.socket) -> bytes:
    """All that comes until the service closes."""
    received = b""
    while chunk := connection.recv(65_536):
        received += chunk
    return received


def refused(http: httpx.Client, reason: str) -> float:
    return metric(http, f'kvshelf_refused_requests_total{{reason="{reason}"}}')


def head(path: str, length_bytes: int, kind: str = "application/json", method: str = "PUT") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", f"content-type: {kind}", f"content-length: {length_bytes}"]
    return "\r\n".join([*lines, "", ""]).encode()


HALVES = {
    "head": b"GET /healthz HTTP/1.1\r\nhost: loc",
    "first byte": b"G",
    "line break": b"\r\n",
    "body": head("/v1/namespaces/a", 100) + b'{"model"',
    "no byte of a body": head("/v1/namespaces/a", 100),
    "chunked body": b"PUT /v1/namespaces/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"transfer-encoding: chunked\r\n\r\n5\r\n{",
}


@pytest.mark.parametrize("half", list(HALVES))
def test_half_a_request_is_a_408(face: Live, http: httpx.Client, half: str) -> None:
    clock = SystemClock()
    with connected(face) as connection:
        started = clock.monotonic()
        connection.sendall(HALVES[half])
        answer = rest_of(connection)
    assert STALL_SECONDS * 0.9 < clock.monotonic() - started < SOON
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"application/problem+json" in answer
    assert refused(http, "slow") == 1
    eventually(lambda: face.context.under_way == 0, SOON)


def test_half_a_request_after_a_fetch_of_nothing_is_a_408_too(face: Live) -> None:
    with connected(face) as connection:
        connection.sendall(b"GET /v1/leases/none/fetch HTTP/1.1\r\nhost: localhost\r\n\r\n" + HALVES["head"])
        answers = rest_of(connection)
    assert answers.startswith(b"HTTP/1.1 404 ")
    assert b"HTTP/1.1 408 " in answers


@pytest.mark.parametrize("whole", [HALVES["head"], HALVES["body"]])
def test_a_trickle_is_no_progress(face: Live, http: httpx.Client, whole: bytes) -> None:
    """A byte now and then does not keep a connection."""
    clock = SystemClock()
    with connected(face) as connection:
        started = clock.monotonic()
        connection.sendall(whole)
        connection.settimeout(0.05)
        answer = b""
        while not answer:
            try:
                answer = connection.recv(4096)
            except TimeoutError:
                assert clock.monotonic() - started < SOON
                connection.sendall(b"x")
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_what_comes_slowly_but_comes_is_taken(face: Live, http: httpx.Client) -> None:
    """Four times the patience, for a body that is in no hurry."""
    register(http)
    keys = keys_of(http, tokens(64 * BLOCK))
    frames = blocks(keys)
    pieces = [frames[start : start + 1000] for start in range(0, len(frames), 1000)]
    with connected(face) as connection:
        connection.sendall(head("/v1/namespaces/ns/store", len(frames), "application/vnd.kvshelf.frames.v1", "POST"))
        connection.settimeout(4 * STALL_SECONDS / len(pieces))
        for piece in pieces:
            connection.sendall(piece)
            with pytest.raises(TimeoutError):
                _pause(connection, is_last=piece is pieces[-1])
        connection.settimeout(20)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
    assert refused(http, "slow") == 0


def _pause(connection: socket.socket, *, is_last: bool) -> None:
    if is_last:
        raise TimeoutError
    connection.recv(1)


def test_an_answer_that_is_not_read_is_given_up(face: Live, http: httpx.Client) -> None:
    register(http, bytes_per_token=16_384)
    prompt = tokens(16 * BLOCK)
    keys = keys_of(http, prompt)
    size = 16_384 * BLOCK
    for number, key in enumerate(keys):
        store(http, frame(key, (number + 1) * BLOCK, payload=bytes(size)))
    planned = plan(http, prompt + tokens(1))
    assert planned["hit_tokens"] == 16 * BLOCK
    lease = planned["lease"]["lease_id"]
    with connected(face, receive_bytes=4096) as connection:
        connection.sendall(f"GET /v1/leases/{lease}/fetch HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        eventually(lambda: face.context.under_way == 1, SOON)
        eventually(lambda: refused(http, "slow") == 1, SOON)
        eventually(lambda: face.context.under_way == 0, SOON)
    start, end = planned["plan"]["load"]["global"]
    assert len(fetch(http, planned)) == (end - start) // BLOCK > 10


def test_idle_connections_and_slow_answers_are_left_alone(face: Live, http: httpx.Client) -> None:
    with connected(face) as connection:
        connection.settimeout(3 * STALL_SECONDS)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert refused(http, "slow") == 0


def test_what_goes_on_after_a_refusal_is_cut_off(face: Live, http: httpx.Client) -> None:
    limit = face.parts.settings.limits.max_json_bytes
    with connected(face) as connection:
        connection.sendall(head("/v1/namespaces/a", 1 << 40))
        assert re.match(rb"HTTP/1.1 413 ", connection.recv(4096))
        with pytest.raises(ConnectionError):
            connection.sendall(bytes(20 * limit))
    assert http.get("/healthz").status_code == 200


def test_half_a_long_store_is_a_408(face: Live, http: httpx.Client) -> None:
    """Its body is read past the HTTP server; what was whole is kept all the same."""
    register(http, bytes_per_token=16_384)
    keys = keys_of(http, tokens(2 * BLOCK))
    frames = b"".join(frame(key, (n + 1) * BLOCK, payload=bytes(16_384 * BLOCK)) for n, key in enumerate(keys))
    with connected(face) as connection:
        connection.sendall(head("/v1/namespaces/ns/store", len(frames), "application/vnd.kvshelf.frames.v1", "POST"))
        connection.sendall(frames[:-100_000])
        assert rest_of(connection).startswith(b"HTTP/1.1 408 ")
    assert refused(http, "slow") == 1
    eventually(lambda: face.context.under_way == 0 and face.context.stores_under_way == 0, SOON)


def test_an_answer_that_is_read_slowly_is_sent_to_its_end(face: Live, http: httpx.Client) -> None:
    """Several times the patience, with pauses that are shorter than it."""
    register(http, bytes_per_token=16_384)
    prompt = tokens(4 * BLOCK)
    keys = keys_of(http, prompt)
    for number, key in enumerate(keys):
        store(http, frame(key, (number + 1) * BLOCK, payload=bytes(16_384 * BLOCK)))
    planned = plan(http, prompt + tokens(2 * BLOCK))
    start, end = planned["plan"]["load"]["global"]
    expected = (end - start) * 16_384
    assert expected >= 4 << 20
    ask = f"GET /v1/leases/{planned['lease']['lease_id']}/fetch HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    pause = threading.Event()
    with connected(face, receive_bytes=1 << 16) as connection:
        connection.sendall(ask)
        received = 0
        for _ in range(16):
            pause.wait(STALL_SECONDS / 4)
            received += len(connection.recv(1 << 16))
        while received < expected:
            chunk = connection.recv(1 << 20)
            assert chunk, f"cut off after {received} of {expected} bytes"
            received += len(chunk)
    assert refused(http, "slow") == 0
