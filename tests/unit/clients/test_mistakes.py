"""Mistakes of the caller: an error that names what is wrong, before anything is sent; and what a log may show."""

import array
import json
from math import inf, nan
from typing import Any

import pytest

from kvshelf_client import Client, Fault, NamespaceSpec, Nodes, Plan, Slot, StoreRecord
from kvshelf_client.answers import HashedTokens, StoreOutcome
from kvshelf_client.errors import ServiceError
from kvshelf_client.requests import DeleteRecords, HashTokens, Register, Store
from kvshelf_client.words import Provenance, RecordClass
from tests.support.scripted_server import Reply, ScriptedServer, answer
from tests.support.scripted_transport import ScriptedTransport
from tests.support.wire import KEYS, NAMESPACE, block_frame, plan_for, resume, snapshot_answer

NOWHERE = "http://127.0.0.1:1"
SECRET = b"secret"


@pytest.mark.parametrize(
    "options",
    [
        *(
            {name: value}
            for name in ("budget_seconds", "read_seconds", "connect_seconds")
            for value in (0, -1, nan, "1")
        ),
        *({"max_connections": value} for value in (0, -1, 1.5, "4")),
        {"token": 5},
        {"tls": "ca.pem"},
    ],
    ids=repr,
)
def test_an_option_without_meaning_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(options))} is "):
        Client(NOWHERE, **options)


@pytest.mark.parametrize("name", ["budget_second", "tokn"])
def test_an_option_that_is_none_is_a_type_error(name: str) -> None:
    options: dict[str, Any] = {name: 0.1}
    with pytest.raises(TypeError, match=f"no option '{name}'"):
        Client(NOWHERE, **options)
    with pytest.raises(TypeError, match=f"no option '{name}'"):
        Nodes([NOWHERE], **options)


@pytest.mark.parametrize("service", [8710, None, b"http://127.0.0.1:8710", "127.0.0.1:8710"])
def test_a_service_is_an_address(service: Any) -> None:
    with pytest.raises(ValueError, match=r"http://127\.0\.0\.1:8710"):
        Client(service)


@pytest.mark.parametrize("budget_seconds", [inf, 1e9, 1e300])
def test_a_budget_may_be_as_long_as_it_likes(budget_seconds: float) -> None:
    replies = [Reply(answer(b'{"uptime": 1}'))] * 2
    with ScriptedServer(replies) as server, Client(server.url, budget_seconds=budget_seconds) as client:
        assert client.stats() == {"uptime": 1}
        assert client.stats(budget_seconds=budget_seconds) == {"uptime": 1}


@pytest.mark.parametrize("budget_seconds", [nan, "1"])
def test_a_budget_that_is_no_number_is_a_mistake(budget_seconds: Any) -> None:
    with pytest.raises(ValueError, match=r"^budget_seconds is a number"):
        Client(NOWHERE).stats(budget_seconds=budget_seconds)


@pytest.mark.parametrize("name", ["", "a/b ä", ".", "..", "a" * 129, None])
def test_the_name_of_a_namespace_is_looked_at_here(name: Any) -> None:
    spec = NamespaceSpec("default", "m", "1", "p")
    for client in (Client(NOWHERE), Nodes([NOWHERE])):
        with pytest.raises(ValueError, match=r"^the name of a namespace is 1 to 128"):
            client.register(name, spec)


@pytest.mark.parametrize("typecode", ["I", "i", "B"])
def test_tokens_are_integers_of_32_bits(typecode: str) -> None:
    tokens = array.array(typecode, range(8))
    transport = ScriptedTransport(HashedTokens(bytes(32), 64, []))
    Client(transport).hash_tokens(NAMESPACE, tokens)
    assert transport.asked == [HashTokens("n", memoryview(tokens.tobytes()))]


@pytest.mark.parametrize(
    "tokens", [array.array("f", [1.0]), array.array("q", [1]), array.array("H", [1, 2]), memoryview(bytes(16))[::2]]
)
def test_tokens_of_another_kind_are_refused(tokens: Any) -> None:
    for call in (Client(NOWHERE).plan, Client(NOWHERE).hash_tokens):
        with pytest.raises(ValueError, match=r"^tokens are u32"):
            call(NAMESPACE, tokens=tokens)


@pytest.mark.parametrize("buffer", [memoryview(bytearray(1280))[::2], "text"], ids=["in pieces", "a text"])
def test_a_buffer_that_is_in_pieces_is_named_by_its_slot(buffer: Any) -> None:
    plan = plan_for(snapshot_answer()._replace(resume=resume()))
    with pytest.raises(ValueError, match=r"^Slot\(.*end_tokens=64.*contiguous"):
        Client(ScriptedTransport(block_frame(0))).fetch_into(plan, {Slot(RecordClass.BLOCK, 64): buffer})


def test_a_payload_in_pieces_is_refused() -> None:
    record = StoreRecord(RecordClass.BLOCK, KEYS[0], 64, memoryview(bytes(1280))[::2], Provenance.EXACT)
    with pytest.raises(ValueError, match=r"^the payload of StoreRecord\(.*end_tokens=64.*not contiguous"):
        Client(NOWHERE).store(NAMESPACE, [record])


def test_the_address_of_something_else_is_a_mistake_and_no_lost_namespace() -> None:
    no_route = json.dumps({"status": 404, "detail": "there is no such route", "reason": "no_route"}).encode()
    lost = json.dumps({"status": 404, "detail": "there is no namespace 'n'"}).encode()
    replies = [Reply(answer(body, status="404 Not Found")) for body in (no_route, b"<html>", lost)]
    with ScriptedServer(replies) as server, Client(server.url) as client:
        faults = [client.plan(NAMESPACE, tokens=bytes(4)).fault for _ in replies]
    assert faults == [Fault.REFUSED, Fault.REFUSED, Fault.UNKNOWN]
    assert ServiceError(404, {}).fault is Fault.UNKNOWN


def shown_objects() -> list[object]:
    """One of everything an engine might log, each with something that does not belong in a log."""
    record = StoreRecord(RecordClass.BLOCK, SECRET * 6, 64, SECRET, Provenance.EXACT)
    spec = NamespaceSpec("default", "m", "1", "p", salt=SECRET.decode())
    outcome = StoreOutcome(SECRET * 6, 0, "block", "stored", None, None, 1)
    client = Client(ScriptedTransport(snapshot_answer(), snapshot_answer()), token=SECRET.decode())
    by_tokens: Plan = client.plan(NAMESPACE, tokens=SECRET * 2, extra=SECRET)
    by_hashes: Plan = client.plan(NAMESPACE, hashes=KEYS, prompt_tokens=1000)
    return [
        record,
        outcome,
        HashedTokens(bytes(32), 64, [SECRET * 6]),
        client,
        client._options,
        by_tokens,
        by_hashes,
        by_tokens.keys and by_tokens,
        Register("n", spec),
        HashTokens("n", SECRET),
        Store("n", [record], 100, supersedes=SECRET * 6),
        DeleteRecords("n", RecordClass.BLOCK, [SECRET * 6]),
    ]


def test_nothing_that_may_be_logged_shows_tokens_keys_or_payloads() -> None:
    for one in shown_objects():
        text = repr(one)
        assert "secret" not in text, text
        assert str(KEYS[0])[2:-1] not in text
        assert KEYS[0].hex() not in text
