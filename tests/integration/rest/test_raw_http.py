"""What is no decent HTTP: a clear refusal, and the service goes on."""

import socket
from urllib.parse import urlsplit

import httpx
import pytest

from service.rest.protocol import MAX_HEAD_BYTES
from tests.support.live import Live


def exchange(face: Live, *parts: bytes) -> bytes:
    """Send bytes, and read until the service closes the connection."""
    address = urlsplit(face.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=20) as connection:
        received = b""
        try:
            for part in parts:
                connection.sendall(part)
            while chunk := connection.recv(65_536):
                received += chunk
        except ConnectionError:
            pass
        return received


@pytest.mark.parametrize("request_line", [b"hello\r\n\r\n", b"GET /healthz HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00"])
def test_what_is_no_http_is_a_400(face: Live, http: httpx.Client, request_line: bytes) -> None:
    answer = exchange(face, request_line)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer
    assert http.get("/healthz").status_code == 200


def test_a_head_within_the_bound_is_taken(http: httpx.Client) -> None:
    answer = http.get("/healthz", headers={"x-padding": "x" * (MAX_HEAD_BYTES - 1000)})
    assert answer.status_code == 200


def test_a_whole_head_over_the_bound_is_a_431(face: Live, http: httpx.Client) -> None:
    padding = b"x-padding: " + b"x" * MAX_HEAD_BYTES + b"\r\n"
    answer = exchange(face, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + padding + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert http.get("/healthz").status_code == 200


def test_a_head_that_never_ends_is_cut_off(face: Live, http: httpx.Client) -> None:
    parts = [b"x" * 16_384] * 12
    answer = exchange(face, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-padding: ", *parts)
    # The close may reach this side before the answer does; what counts is that nothing else was answered.
    assert not answer or answer.startswith(b"HTTP/1.1 431 ")
    assert http.get("/healthz").status_code == 200


def test_many_small_headers_over_the_bound_are_refused(face: Live, http: httpx.Client) -> None:
    fields = b"".join(b"x-%d: y\r\n" % number for number in range(10_000))
    answer = exchange(face, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + fields + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert http.get("/healthz").status_code == 200


def test_a_trailer_over_the_bound_is_refused(face: Live, http: httpx.Client) -> None:
    head = b"PUT /v1/namespaces/a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"
    fields = b"".join(b"x-%d: %b\r\n" % (number, b"y" * 1000) for number in range(100))
    answer = exchange(face, head + fields + b"\r\n")
    assert answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 415 "))
    assert answer.count(b"HTTP/1.1 431 ") == 1
    assert http.get("/healthz").status_code == 200


def test_pipelined_requests_are_answered_in_order(face: Live) -> None:
    one = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    answer = exchange(face, one + one + one.replace(b"host: localhost", b"host: localhost\r\nconnection: close"))
    assert answer.count(b"HTTP/1.1 200 OK") == 3
