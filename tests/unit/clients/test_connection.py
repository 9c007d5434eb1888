"""The client's connections: reuse, the retry on a stale one, and everything that can go wrong with an answer."""

import socket

import pytest

from kvshelf_client import Client
from kvshelf_client.errors import AnswerError, DeadlineError, ServiceError, UnreachableError
from kvshelf_client.words import RecordClass
from tests.support.scripted_server import Reply, ScriptedServer, answer
from tests.support.wire import NAMESPACE

_OK = answer(b'{"status": "ok", "causes": []}')


def test_calls_share_one_connection() -> None:
    with ScriptedServer([Reply(_OK), Reply(_OK), Reply(_OK)]) as server, Client(server.url, strict=True) as client:
        for _ in range(3):
            assert client.health().status == "ok"
    assert [seen.connection for seen in server.seen] == [0, 0, 0]


def test_an_error_answer_keeps_the_connection() -> None:
    problem = answer(b'{"title": "Not Found", "detail": "no namespace x", "status": 404}', "404 Not Found")
    with ScriptedServer([Reply(problem), Reply(_OK)]) as server, Client(server.url, strict=True) as client:
        with pytest.raises(ServiceError, match="HTTP 404: no namespace x") as caught:
            client.stats()
        assert caught.value.status == 404
        assert caught.value.problem["title"] == "Not Found"
        client.stats()
    assert [seen.connection for seen in server.seen] == [0, 0]


def test_a_connection_closed_while_idle_is_noticed_before_it_is_used() -> None:
    """Also a store, which is never sent twice, gets through."""
    stored = answer(b'{"outcomes": [], "counts": {}, "plan_known": true}')
    with ScriptedServer([Reply(_OK, close=True), Reply(stored)]) as server, Client(server.url, strict=True) as client:
        client.stats()
        assert server.closed_connections.acquire(timeout=20)
        assert client.store(NAMESPACE, []).counts == {}
    assert [(seen.connection, seen.method) for seen in server.seen] == [(0, "GET"), (1, "POST")]


def test_a_kept_connection_that_dies_without_an_answer_is_tried_once_more() -> None:
    script = [Reply(_OK), Reply(b"", close=True), Reply(_OK)]
    with ScriptedServer(script) as server, Client(server.url, strict=True) as client:
        client.stats()
        assert client.health().status == "ok"
    assert [seen.connection for seen in server.seen] == [0, 0, 1]


def test_a_store_on_a_dying_connection_is_not_sent_twice() -> None:
    script = [Reply(_OK), Reply(b"", close=True), Reply(_OK)]
    with ScriptedServer(script) as server, Client(server.url, strict=True) as client:
        client.stats()
        with pytest.raises(UnreachableError):
            client.store(NAMESPACE, [])
    assert len(server.seen) == 2


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UnreachableError, match="refused"):
        Client(f"http://127.0.0.1:{port}", strict=True).stats()


def test_no_answer_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", strict=True, budget_seconds=0.05)
        with pytest.raises(DeadlineError, match="in time"):
            client.stats()


def test_an_answer_that_breaks_off() -> None:
    with (
        ScriptedServer([Reply(_OK[:-3], close=True)] * 3) as server,
        Client(server.url, strict=True) as client,
        pytest.raises(UnreachableError),
    ):
        client.stats()


def test_an_error_that_is_no_problem_document() -> None:
    with (
        ScriptedServer([Reply(answer(b"<html>", "502 Bad Gateway"))]) as server,
        Client(server.url, strict=True) as client,
        pytest.raises(ServiceError, match="HTTP 502") as caught,
    ):
        client.stats()
    assert caught.value.problem == {}


def test_an_error_that_ends_the_connection() -> None:
    reply = Reply(answer(b'{"detail": "too large"}', "413 Too Large", extra="connection: close\r\n"))
    with (
        ScriptedServer([reply]) as server,
        Client(server.url, strict=True) as client,
        pytest.raises(ServiceError, match="too large"),
    ):
        client.store(NAMESPACE, [])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[]", "answer is no JSON object"),
        (b"nonsense", "answer is no JSON"),
        (b"[" * 200_000, "answer is no JSON"),
        (b'{"records": ' + b"9" * 5000 + b"}", "answer is no JSON"),
        (b"{}", r"answer\.records is missing"),
        (b'{"records": "2"}', r"answer\.records is no integer"),
        (b'{"records": true}', r"answer\.records is no integer"),
    ],
)
def test_an_answer_that_is_not_understood(body: bytes, message: str) -> None:
    with (
        ScriptedServer([Reply(answer(body))]) as server,
        Client(server.url, strict=True) as client,
        pytest.raises(AnswerError, match=message),
    ):
        client.touch(NAMESPACE, RecordClass.BLOCK, [bytes(32)])


@pytest.mark.parametrize("url", ["127.0.0.1:8710", "ftp://host", "http://", "http://host?x=1", ""])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match="is no service address"):
        Client(url)


def test_a_path_in_front_of_the_api() -> None:
    with ScriptedServer([Reply(_OK)]) as server, Client(server.url + "/cache/", strict=True) as client:
        client.stats()
    assert server.seen[0].target == "/cache/v1/stats"
