"""The head of a response is read strictly: what is not quite HTTP/1.1 is not guessed at."""

import pytest

from kvshelf_client.errors import AnswerError
from kvshelf_client.http.head import Head, parse_head

OK = b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (OK + b"\r\ncontent-length: 12", Head(200, 12, False, None)),
        (OK + b"\r\nCoNtEnt-LENGTH:\t 12 \r\nx: y", Head(200, 12, False, None)),
        (OK + b"\r\ncontent-length: 5\r\ncontent-length: 5", Head(200, 5, False, None)),
        (OK + b"\r\ncontent-length: 0\r\nconnection: Close", Head(200, 0, True, None)),
        (OK, Head(200, None, False, None)),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 1", Head(200, 1, True, None)),
        (b"HTTP/1.1 200", Head(200, None, False, None)),
        (b"HTTP/1.1 204 No Content", Head(204, 0, False, None)),
        (b"HTTP/1.1 503 Busy\r\nretry-after: 2\r\ncontent-length: 0", Head(503, 0, False, 2.0)),
        (b"HTTP/1.1 503 Busy\r\nretry-after: Wed, 21 Oct 2026 07:28:00 GMT", Head(503, None, False, None)),
        (OK + b"\r\nx-empty:", Head(200, None, False, None)),
    ],
)
def test_what_is_read(head: bytes, expected: Head) -> None:
    assert parse_head(head) == expected


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\r\n",
        b"HTTP/2 200 OK",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 2000 OK",
        b"HTTP/1.1 abc",
        b"HTTP/1.1 100 Continue",
        "HTTP/1.1 ٢٠٠ OK".encode(),
        b"GET / HTTP/1.1",
        OK + b"\r\nno colon",
        OK + b"\r\n: nameless",
        OK + b"\r\nname : with a space",
        OK + b"\r\n folded: line",
        OK + b"\r\ncontent-length: -1",
        OK + b"\r\ncontent-length: +1",
        OK + b"\r\ncontent-length: 1.5",
        OK + b"\r\ncontent-length: 0x10",
        OK + b"\r\ncontent-length: 1_000",
        OK + b"\r\ncontent-length:",
        OK + b"\r\ncontent-length: 1" + b"0" * 18,
        OK + b"\r\ncontent-length: 5\r\ncontent-length: 6",
        OK + b"\r\ncontent-length: 5, 5",
        OK + b"\r\ntransfer-encoding: chunked",
        OK + b"\r\ncontent-length: 5\r\ntransfer-encoding: chunked",
    ],
)
def test_what_is_refused(head: bytes) -> None:
    with pytest.raises(AnswerError):
        parse_head(head)
