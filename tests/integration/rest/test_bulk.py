"""Long bodies both ways over raw sockets: slow, stalling and leaving clients; none of them leaves anything behind."""

import socket
from itertools import pairwise
from typing import Any

import httpx
import pytest

from kvshelf_client.frames import MEDIA_TYPE, FrameHeader
from kvshelf_client.words import MissReason
from service.rest import receiving, sending
from tests.support.engine import BLOCK, frame, keys_of, payload_of, plan, register, split, store, tokens
from tests.support.live import Live
from tests.support.raw_http import ask_for, connected, read_answer
from tests.support.served import eventually

BYTES_PER_TOKEN = 890
BLOCK_BYTES = BLOCK * BYTES_PER_TOKEN
BLOCKS = 160
"""18 MB: far more than two sockets take without being read from."""
SOON = 20.0


def records(keys: list[str], start: int = 0) -> bytes:
    return b"".join(
        frame(key, (number + 1) * BLOCK, payload=payload_of(key, BLOCK_BYTES))
        for number, key in enumerate(keys)
        if number >= start
    )


@pytest.fixture
def keys(http: httpx.Client) -> list[str]:
    """The blocks of a prompt, stored."""
    register(http, bytes_per_token=BYTES_PER_TOKEN)
    made = keys_of(http, tokens(BLOCKS * BLOCK))
    assert store(http, records(made))["counts"] == {"stored": BLOCKS}
    return made


def head_of_store(length: int | None, *fields: str, path: str = "/v1/namespaces/ns/store") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: localhost", f"content-type: {MEDIA_TYPE}", *fields]
    lines += [f"content-length: {length}"] if length is not None else ["transfer-encoding: chunked"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def are_right(found: list[tuple[FrameHeader, bytes]], keys: list[str]) -> bool:
    return [(header.key.hex(), header.miss, payload) for header, payload in found] == [
        (key, None, payload_of(key, BLOCK_BYTES)) for key in keys
    ]


def leased(http: httpx.Client) -> dict[str, Any]:
    return plan(http, tokens(BLOCKS * BLOCK + 2 * BLOCK))


@pytest.mark.parametrize("most", [0, 64 << 20])
def test_clients_that_stall_hold_up_nobody_and_get_everything_in_the_end(
    face: Live, http: httpx.Client, keys: list[str], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than there are threads; what was read for them is kept, or let go of and read again."""
    monkeypatch.setattr(sending, "STALLED_BYTES", most)
    planned = leased(http)
    stalled = []
    try:
        for _ in range(12):
            connection = connected(face)
            stalled.append((connection, connection.__enter__()))
            stalled[-1][1].sendall(ask_for(planned))
        with connected(face, 1 << 20) as other:
            other.sendall(ask_for(planned))
            assert are_right(split(read_answer(other)[1]), keys)
        assert face.context.stalled_bytes <= most
        for _, sock in stalled:
            assert are_right(split(read_answer(sock)[1]), keys)
    finally:
        for connection, _ in stalled:
            connection.__exit__(None, None, None)
    assert face.context.stalled_bytes == 0


def test_a_lease_that_ends_while_the_client_stalls_leaves_misses_of_the_same_length(
    face: Live, http: httpx.Client, keys: list[str]
) -> None:
    planned = leased(http)
    with connected(face) as sock:
        sock.sendall(ask_for(planned))
        eventually(lambda: face.context.stalled_bytes > 0, SOON)
        assert http.delete(f"/v1/leases/{planned['lease']['lease_id']}").status_code == 200
        found = split(read_answer(sock)[1])
    assert len(found) == BLOCKS
    sound = [header for header, _ in found if header.miss is None]
    assert 0 < len(sound) < BLOCKS
    assert are_right(found[: len(sound)], keys[: len(sound)])
    assert {header.miss for header, _ in found[len(sound) :]} == {MissReason.EXPIRED}


def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(
    face: Live, http: httpx.Client, keys: list[str]
) -> None:
    for _ in range(3):
        planned = leased(http)
        with connected(face) as sock:
            sock.sendall(ask_for(planned))
            sock.recv(100_000)
    eventually(lambda: face.context.under_way == 0 and face.context.stalled_bytes == 0, SOON)
    assert are_right(split(http.get(f"/v1/leases/{leased(http)['lease']['lease_id']}/fetch").content), keys)


def test_one_connection_fetches_stores_and_fetches_again(face: Live, http: httpx.Client, keys: list[str]) -> None:
    """All of it is sent before the first answer is read."""
    more = keys_of(http, tokens(BLOCK, seed=1))
    planned, body = leased(http), records(more)
    with connected(face, 1 << 20) as sock:
        sock.sendall(ask_for(planned) + head_of_store(len(body)) + body + ask_for(planned))
        assert are_right(split(read_answer(sock)[1]), keys)
        head, answer = read_answer(sock)
        assert head.startswith(b"http/1.1 200")
        assert b'"stored":1' in answer.replace(b" ", b"")
        assert are_right(split(read_answer(sock)[1]), keys)


@pytest.mark.parametrize("way", ["length", "chunked", "expect", "trickle"])
def test_a_store_is_the_same_however_its_body_comes(face: Live, http: httpx.Client, way: str) -> None:
    register(http, bytes_per_token=BYTES_PER_TOKEN)
    made = keys_of(http, tokens(80 * BLOCK))
    body = records(made)
    with connected(face) as sock:
        if way == "chunked":
            sock.sendall(head_of_store(None))
            for start in range(0, len(body), 100_000):
                part = body[start : start + 100_000]
                sock.sendall(b"%x\r\n%b\r\n" % (len(part), part))
            sock.sendall(b"0\r\n\r\n")
        elif way == "expect":
            sock.sendall(head_of_store(len(body), "expect: 100-continue"))
            assert sock.recv(1000).startswith(b"HTTP/1.1 100 ")
            sock.sendall(body)
        elif way == "length":
            sock.sendall(head_of_store(len(body)) + body)
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ends = [*range(200), *range(200, len(body), 99_991), len(body)]
            sock.sendall(head_of_store(len(body)))
            for start, end in pairwise(ends):
                sock.sendall(body[start:end])
        head, answer = read_answer(sock)
        assert head.startswith(b"http/1.1 200")
        assert b'"stored":80' in answer.replace(b" ", b"")
    assert plan(http, tokens(80 * BLOCK))["hit_tokens"] == 80 * BLOCK
    assert face.context.stores_under_way == 0


def test_what_is_wrong_with_a_long_body_is_said_and_the_connection_lives_on(face: Live, http: httpx.Client) -> None:
    register(http, bytes_per_token=BYTES_PER_TOKEN)
    made = keys_of(http, tokens(BLOCKS * BLOCK))
    good, rest = records(made[:3]), records(made, start=3)
    body = good + b"no frame" + rest
    with connected(face) as sock:
        sock.sendall(head_of_store(len(body)) + body)
        head, answer = read_answer(sock)
        assert head.startswith(b"http/1.1 400")
        assert b"after 3 records" in answer
        sock.sendall(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 204")
    assert plan(http, tokens(BLOCKS * BLOCK))["hit_tokens"] == 3 * BLOCK, "what was whole before it is kept"


def test_the_rest_of_a_bad_body_is_not_waited_for_for_ever(
    face: Live, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "DISCARD_SECONDS", 0.2)
    register(http, bytes_per_token=BYTES_PER_TOKEN)
    with connected(face) as sock:
        sock.sendall(head_of_store(10_000_000) + b"no frame" * 20_000)
        head, _ = read_answer(sock)
        assert head.startswith(b"http/1.1 400")
        assert b"connection: close" in head
        assert sock.recv(1000) == b""


def test_a_store_whose_client_leaves_keeps_the_whole_batches(face: Live, http: httpx.Client) -> None:
    register(http, bytes_per_token=BYTES_PER_TOKEN)
    body = records(keys_of(http, tokens(BLOCKS * BLOCK)))
    with connected(face) as sock:
        sock.sendall(head_of_store(len(body)) + body[: len(body) * 3 // 4])
    eventually(lambda: face.context.stores_under_way == 0 and face.context.under_way == 0, SOON)
    assert 64 * BLOCK <= plan(http, tokens(BLOCKS * BLOCK))["hit_tokens"] < BLOCKS * BLOCK


def test_many_stores_at_once_share_what_may_be_in_memory(
    face: Live, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stores that stall in the middle keep a share; another one goes on beside them."""
    register(http, bytes_per_token=BYTES_PER_TOKEN)
    made = keys_of(http, tokens(60 * BLOCK))
    body = records(made)
    stalled = []
    try:
        for _ in range(12):
            connection = connected(face)
            stalled.append((connection, connection.__enter__()))
            stalled[-1][1].sendall(head_of_store(len(body)) + body[: len(body) // 2])
        eventually(lambda: face.context.stores_under_way == 12, SOON)
        assert store(http, body)["counts"].keys() <= {"stored", "duplicate"}
    finally:
        for connection, _ in stalled:
            connection.__exit__(None, None, None)
    eventually(lambda: face.context.stores_under_way == 0, SOON)
