"""The HTTP transport and everything that can be wrong with a connection: it ends in time, and is not used again."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from kvshelf_client import Client
from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import AnswerError, DeadlineError, KvshelfError, ServiceError, UnreachableError
from kvshelf_client.http.head import MAX_HEAD_BYTES
from kvshelf_client.http.transport import HttpTransport
from kvshelf_client.requests import CheckHealth, Stats
from kvshelf_client.transport import TransportOptions
from tests.support.scripted_server import Reply, ScriptedServer, answer
from tests.support.wire import NAMESPACE

SLACK_SECONDS = 0.5
"""Generous: how late a call is, is what the client's troubles measure, again and again."""


@contextmanager
def transport(url: str, **options: object) -> Iterator[HttpTransport]:
    made = HttpTransport(url, TransportOptions(**options))  # type: ignore[arg-type]
    yield made
    made.close()


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that does ``serve`` with its first connection."""

    def accept() -> None:
        sock, _ = listener.accept()
        with sock:
            serve(sock)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(20)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"nonsense\r\n\r\n", AnswerError),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * MAX_HEAD_BYTES, AnswerError),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", AnswerError),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", AnswerError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n", AnswerError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", UnreachableError),
        (b"HTTP/1.1 200 OK\r\nconte", UnreachableError),
        (b"", UnreachableError),
        (b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n", ServiceError),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>", ServiceError),
        (b"HTTP/1.1 400 Bad\r\ntransfer-encoding: chunked\r\n\r\n", AnswerError),
    ],
)
def test_an_answer_that_is_none_and_its_connection_is_not_used_again(reply: bytes, error: type[KvshelfError]) -> None:
    script = [Reply(reply, close=True), Reply(answer(b"{}"))]
    with ScriptedServer(script) as server, transport(server.url) as http:
        with pytest.raises(error):
            http.call(Stats(), Deadline(5))
        assert server.closed_connections.acquire(timeout=20)
        assert http.call(Stats(), Deadline(5)) == {}
    assert [seen.connection for seen in server.seen] == [0, 1]


def test_a_redirection_is_an_error_and_nobody_goes_there() -> None:
    script = [Reply(b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n"), Reply(answer(b"{}"))]
    with ScriptedServer(script) as server, transport(server.url) as http:
        with pytest.raises(ServiceError, match="302"):
            http.call(Stats(), Deadline(5))
        assert http.call(Stats(), Deadline(5)) == {}
    assert [seen.connection for seen in server.seen] == [0, 0], "it was a whole answer, so the connection is kept"


def test_what_comes_behind_an_answer_is_read_by_nobody() -> None:
    script = [Reply(answer(b"{}") + answer(b'{"of": "another"}')), Reply(answer(b'{"right": 1}'))]
    with ScriptedServer(script) as server, transport(server.url) as http:
        http.call(Stats(), Deadline(5))
        assert http.call(Stats(), Deadline(5)) == {"right": 1}


def _drip(sock: socket.socket) -> None:
    sock.recv(65536)
    pause = threading.Event()
    with contextlib.suppress(OSError):
        for byte in answer(b"{}") * 100:
            sock.sendall(bytes([byte]))
            pause.wait(0.02)


def test_bytes_that_keep_dripping_do_not_put_the_deadline_off() -> None:
    started = time.monotonic()
    with listening(_drip) as url, transport(url) as http, pytest.raises(DeadlineError):
        http.call(Stats(), Deadline(0.2))
    assert 0.2 <= time.monotonic() - started < 0.2 + SLACK_SECONDS + 0.5


def test_a_silence_ends_a_call_before_its_deadline() -> None:
    started = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with transport(url, read_seconds=0.1) as http, pytest.raises(DeadlineError):
            http.call(Stats(), Deadline(20))
    assert time.monotonic() - started < 0.1 + SLACK_SECONDS


def test_a_host_that_does_not_answer_a_connect() -> None:
    """A listener whose queue is full drops what knocks."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for sock in (first, second):
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        started = time.monotonic()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with transport(url, connect_seconds=0.1) as http, pytest.raises(DeadlineError):
            http.call(Stats(), Deadline(20))
    assert time.monotonic() - started < 0.1 + SLACK_SECONDS


def test_calls_beyond_the_connections_wait_for_one_in_time() -> None:
    def hold() -> None:
        with pytest.raises(DeadlineError, match="answer in time"):
            client.stats(budget_seconds=0.4)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, max_connections=1, strict=True) as client, ThreadPoolExecutor(1) as threads:
            held = threads.submit(hold)
            accepted, _ = silent.accept()
            with accepted:
                with pytest.raises(DeadlineError, match="under way"):
                    client.stats(budget_seconds=0.1)
                held.result(20)
            hold()


def test_a_name_is_resolved_and_one_that_is_none_is_an_error() -> None:
    with ScriptedServer([Reply(answer(b"{}"))]) as server:
        with transport(server.url.replace("127.0.0.1", "localhost")) as http:
            assert http.call(Stats(), Deadline(5)) == {}
        with transport("http://no-such-host.invalid") as http, pytest.raises(UnreachableError, match="not resolved"):
            http.call(Stats(), Deadline(20))


def test_a_token_goes_with_every_request_and_shows_nowhere() -> None:
    ok = Reply(answer(b'{"status": "ok", "causes": []}'))
    with ScriptedServer([ok, ok]) as server, transport(server.url, token="sesame") as http:
        for _ in range(2):
            http.call(CheckHealth(), Deadline(5))
    assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer sesame"] * 2
    assert "sesame" not in repr(TransportOptions(token="sesame"))


@pytest.mark.parametrize("token", ["with space", "line\r\nbreak", "söme", "nul\0"])
def test_a_token_that_cannot_be_sent_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="token"):
        Client("http://127.0.0.1:1", token=token)


@pytest.mark.parametrize("url", ["http://user@host", "http://host:99999999", "http://a b", "https://x?y", "file:///x"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ValueError):
        Client(url)


def test_a_large_body_that_is_refused_half_way_has_its_answer_read() -> None:
    def refuse(sock: socket.socket) -> None:
        sock.recv(1000)
        sock.sendall(answer(b'{"detail": "too large"}', "413 Too Large", extra="connection: close\r\n"))

    with listening(refuse) as url, Client(url, strict=True, budget_seconds=5) as client:
        with pytest.raises(KvshelfError) as caught:
            client.store(NAMESPACE, [], durable=False)
        assert isinstance(caught.value, ServiceError)


def test_a_child_makes_connections_of_its_own() -> None:
    script = [Reply(answer(b'{"n": %d}' % number)) for number in range(3)]
    with ScriptedServer(script) as server, transport(server.url) as http:
        http.call(Stats(), Deadline(5))
        pid = os.fork()
        if pid == 0:
            idle = len(http._exchanges._idle)
            taken = http._exchanges._take_idle()
            os._exit(0 if idle == 1 and taken is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert http.call(Stats(), Deadline(5)) == {"n": 1}
    assert [seen.connection for seen in server.seen] == [0, 0], "the parent's connection is as it was"


def test_a_closed_client_answers_that_there_is_nothing() -> None:
    with ScriptedServer([Reply(answer(b'{"a": 1}'))]) as server:
        client = Client(server.url)
        assert client.stats() == {"a": 1}
        client.close()
        assert client.stats() is None
        assert server.closed_connections.acquire(timeout=20)
