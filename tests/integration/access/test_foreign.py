"""What is another tenant's looks as if it had never been: the same answer, byte for byte, by the same steps."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest

from kvshelf_client.frames import MEDIA_TYPE
from kvshelf_client.request_ids import HEADER
from service.access import Principal, Scope
from service.leases.lease import RanPlan
from service.settings import load_settings
from service.shelf.fetching import open_fetch
from service.shelf.finishing import finish
from service.shelf.parts import Parts
from service.shelf.storing import ran_plan
from storage.clock import ManualClock
from tests.support import engine
from tests.support.engine import BLOCK, blocks, keys_of, plan, register, release, serve_cold, store, tokens
from tests.support.live import Live, live
from tests.support.service import make_parts
from tests.support.tokens import EVERYTHING, two_tenants

AsToken = Callable[[str], httpx.Client]
PROMPT = tokens(1000)
KEY = "ab" * 32


@pytest.fixture
def mine(as_token: AsToken) -> httpx.Client:
    return as_token("a")


@pytest.fixture
def theirs(as_token: AsToken) -> httpx.Client:
    """Another tenant, who has a namespace ``theirs`` with records in it."""
    client = as_token("b")
    register(client, "theirs")
    keys = keys_of(client, PROMPT, "theirs")
    planned = plan(client, PROMPT, "theirs")
    store(client, blocks(keys), "theirs", plan_id=planned["plan"]["plan_id"])
    release(client, planned)
    return client


NAMESPACE_CALLS = [
    ("GET", "", "", b""),
    ("POST", "/hash", "application/octet-stream", PROMPT),
    ("POST", "/plan", "application/octet-stream", PROMPT),
    ("POST", "/plan", "application/json", b"{"),
    ("POST", "/plan", "text/plain", b"x"),
    ("POST", "/store", MEDIA_TYPE, b""),
    ("POST", "/touch", "application/json", b'{"class": "block", "keys": []}'),
    ("POST", "/delete", "application/json", b'{"class": "block", "keys": []}'),
    ("GET", f"/records/block/{KEY}", "", b""),
    ("HEAD", f"/records/block/{KEY}", "", b""),
    ("PUT", f"/records/block/{KEY}?end_tokens=128", "application/octet-stream", bytes(128)),
    ("DELETE", f"/records/block/{KEY}", "", b""),
]
LEASE_CALLS = [("GET", "/fetch"), ("GET", "/fetch?shard=5&fallback=true"), ("POST", "/touch"), ("DELETE", "?ran=plan")]


def shown(answer: httpx.Response, name: str) -> tuple[int, dict[str, str], str]:
    """All of an answer but the moment and the request's own id, with the name that was asked for taken out."""
    headers = {key: value for key, value in answer.headers.items() if key not in ("date", HEADER)}
    request_id = answer.headers[HEADER]
    assert not answer.text or answer.json()["request_id"] == request_id
    return answer.status_code, headers, answer.text.replace(request_id, "ID").replace(name, "NAME")


@pytest.mark.parametrize("sends_id", [True, False])
@pytest.mark.parametrize(("method", "path", "media_type", "body"), NAMESPACE_CALLS)
def test_a_namespace(
    mine: httpx.Client, theirs: httpx.Client, method: str, path: str, media_type: str, body: bytes, sends_id: bool
) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    if sends_id:
        headers[HEADER] = "an/id:of-mine"
    answers = [
        shown(mine.request(method, f"/v1/namespaces/{name}{path}", content=body, headers=headers), name)
        for name in ("theirs", "nobody")
    ]
    assert answers[0] == answers[1]
    assert answers[0][0] == 404
    assert theirs.request(method, f"/v1/namespaces/theirs{path}", content=body, headers=headers).status_code != 403


@pytest.mark.parametrize(("method", "path"), LEASE_CALLS)
def test_a_lease(mine: httpx.Client, theirs: httpx.Client, method: str, path: str) -> None:
    lease_id = plan(theirs, PROMPT, "theirs")["lease"]["lease_id"]
    never = "id-999999"
    assert len(never) == len(lease_id)
    answers = [shown(mine.request(method, f"/v1/leases/{name}{path}"), name) for name in (lease_id, never)]
    assert answers[0] == answers[1]
    assert answers[0][0] == 404
    assert theirs.get(f"/v1/leases/{lease_id}/fetch").status_code == 200


def test_a_plan_that_a_store_names(mine: httpx.Client, theirs: httpx.Client) -> None:
    register(mine, "ns")
    exact = plan(theirs, PROMPT, "theirs", allow_approximate=False)["plan"]["plan_id"]
    keys = keys_of(mine, PROMPT)
    answers = [
        store(mine, engine.frame(key, BLOCK), plan_id=name)
        for key, name in zip(keys, (exact, "id-999999"), strict=False)
    ]
    for answer in answers:
        assert answer["plan_known"] is False
        assert answer["outcomes"][0]["provenance"] == "replayed"


def test_names_keys_and_request_ids_are_each_tenants_own(mine: httpx.Client, theirs: httpx.Client) -> None:
    fingerprints = {register(client, "theirs")["fingerprint"] for client in (mine, theirs)}
    assert len(fingerprints) == 2
    assert plan(mine, PROMPT, "theirs")["hit_tokens"] == 0
    assert keys_of(mine, PROMPT, "theirs") != keys_of(theirs, PROMPT, "theirs")
    for key in keys_of(theirs, PROMPT, "theirs"):
        assert mine.get(f"/v1/namespaces/theirs/records/block/{key}").status_code == 404
    leases = [plan(client, PROMPT, "theirs", request_id="r")["lease"]["lease_id"] for client in (mine, theirs)]
    for client, lease_id in zip((mine, theirs), leases, strict=True):
        assert client.delete(f"/v1/leases/{lease_id}").status_code == 200


def test_lists_and_statistics_have_what_is_ones_own(
    face: Live, as_token: AsToken, mine: httpx.Client, theirs: httpx.Client
) -> None:
    before = mine.get("/v1/stats").json()
    assert before == {"tenant": "a", "namespaces": 0, "tiers": {"ssd": {"live_bytes": 0}, "dram": {"live_bytes": 0}}}
    register(theirs, "more")
    plan(theirs, PROMPT, "theirs")
    assert mine.get("/v1/stats").json() == before
    assert mine.get("/v1/namespaces").json() == {"namespaces": []}
    assert theirs.get("/v1/stats").json()["tiers"]["ssd"]["live_bytes"] == 7 * BLOCK
    operator = as_token("operator")
    assert [one["name"] for one in operator.get("/v1/namespaces").json()["namespaces"]] == ["more", "theirs"]
    assert operator.get("/v1/stats").json()["leases"]["count"] == 1
    assert operator.get("/v1/namespaces/theirs").status_code == 404
    assert operator.put("/v1/namespaces/x", json={"model": "m", "profile": engine.PROFILE}).status_code == 403


@pytest.mark.parametrize("tenant", ["b", "default", "*"])
def test_nobody_registers_for_another(mine: httpx.Client, tenant: str) -> None:
    body = {"tenant": tenant, "model": "m", "profile": engine.PROFILE, "bytes_per_token": 1}
    answer = mine.put("/v1/namespaces/x", json=body)
    assert answer.status_code == 403
    assert mine.put("/v1/namespaces/x", json=body | {"tenant": "a"}).status_code == 201
    assert mine.get("/v1/namespaces/x").json()["tenant"] == "a"


class Steps:
    """Notes every line of kvshelf that runs in this thread."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int]] = []

    def _trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        path = frame.f_code.co_filename
        if "/service/" not in path and "/storage/" not in path:
            return None
        if event == "line":
            self.lines.append((path, frame.f_lineno))
        return self._trace

    def of(self, call: Callable[[], object]) -> list[tuple[str, int]]:
        """The lines that a call runs; what it raises is swallowed."""
        self.lines = []
        earlier = sys.gettrace()
        sys.settrace(self._trace)
        try:
            call()
        except (LookupError, PermissionError):
            pass
        finally:
            sys.settrace(earlier)
        return self.lines


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    made = make_parts(tmp_path, ManualClock(), access=two_tenants())
    yield made
    made.close()


def test_the_steps_are_the_same_to_the_line(parts: Parts) -> None:
    with live(parts) as running, httpx.Client(base_url=running.url, headers={"Authorization": "Bearer b"}) as client:
        register(client, "theirs")
        planned = plan(client, PROMPT, "theirs")
    me = Principal("a", EVERYTHING)
    steps = Steps()
    lease_id, plan_id = planned["lease"]["lease_id"], planned["plan"]["plan_id"]
    their_namespace = parts.namespaces.get(Principal("b", frozenset(Scope)), "theirs")
    calls: list[tuple[Callable[[str], object], str]] = [
        (lambda name: parts.namespaces.get(me, name), "theirs"),
        (lambda name: parts.namespaces.get_writable(me, name), "theirs"),
        (lambda name: parts.leases.use(me.tenant, name).__enter__(), lease_id),
        (lambda name: open_fetch(parts, me.tenant, name, None, lambda _: b""), lease_id),
        (lambda name: finish(parts, me.tenant, name, RanPlan.PLAN), lease_id),
        (lambda name: ran_plan(parts, me.tenant, their_namespace, name), plan_id),
    ]
    for call, foreign in calls:
        absent = "x" * len(foreign)
        foreign_steps, absent_steps = steps.of(partial(call, foreign)), steps.of(partial(call, absent))
        assert foreign_steps == absent_steps
        assert len(foreign_steps) > 3


@pytest.fixture
def sharing(tmp_path: Path) -> Iterator[AsToken]:
    """Tenant ``a`` shares ``all`` with everybody and ``some`` with ``b``; makes clients by token."""
    shared = [{"tenant": "a", "namespace": "all"}, {"tenant": "a", "namespace": "some", "readers": ["b"]}]
    settings = load_settings(flags={"access": {"shared": shared}}, environment={})
    listed = two_tenants({"c": Principal("c", EVERYTHING)})
    parts = make_parts(tmp_path, ManualClock(), settings=settings, access=listed)
    clients: list[httpx.Client] = []
    with live(parts) as running:

        def make(token: str) -> httpx.Client:
            clients.append(httpx.Client(base_url=running.url, headers={"Authorization": f"Bearer {token}"}))
            return clients[-1]

        yield make
        for client in clients:
            client.close()
    parts.close()


@pytest.mark.parametrize(
    ("token", "name", "may_read"), [("b", "all", True), ("c", "all", True), ("b", "some", True), ("c", "some", False)]
)
def test_a_shared_namespace_is_read_by_whom_it_is_shared_with(
    sharing: AsToken, token: str, name: str, may_read: bool
) -> None:
    owner, reader = sharing("a"), sharing(token)
    assert reader.get(f"/v1/namespaces/{name}").status_code == 404, "before its tenant has registered it"
    register(owner, name)
    keys = serve_cold(owner, PROMPT, name)
    listed = [one["name"] for one in reader.get("/v1/namespaces").json()["namespaces"]]
    if not may_read:
        assert name not in listed
        assert shown(reader.get(f"/v1/namespaces/{name}"), name) == shown(reader.get("/v1/namespaces/nnnn"), "nnnn")
        return
    assert listed == [name]
    planned = plan(reader, PROMPT, name)
    assert planned["hit_tokens"] == 896
    assert len(engine.fetch(reader, planned)) == 6
    assert owner.get(f"/v1/leases/{planned['lease']['lease_id']}/fetch").status_code == 404
    release(reader, planned)
    for answer in (
        reader.post(f"/v1/namespaces/{name}/store", content=b"", headers={"Content-Type": MEDIA_TYPE}),
        reader.delete(f"/v1/namespaces/{name}/records/block/{keys[0]}"),
        reader.post(f"/v1/namespaces/{name}/delete", json={"class": "block", "keys": [keys[0]]}),
    ):
        assert answer.status_code == 403
        assert "shared for reading" in answer.json()["detail"]
    for wanted in ({"namespace": name}, {"tenant": "a"}, {"namespace": name, "keys": [keys[0]]}):
        answer = reader.post("/v1/erasures", json=wanted)
        assert answer.status_code == 404 or answer.json()["namespaces"] == []
    assert plan(owner, PROMPT, name)["hit_tokens"] == 896


def test_ones_own_namespace_comes_before_a_shared_one(sharing: AsToken) -> None:
    owner, reader = sharing("a"), sharing("b")
    shared = register(owner, "all")
    own = register(reader, "all")
    assert own["fingerprint"] != shared["fingerprint"]
    assert reader.get("/v1/namespaces/all").json() == own
    assert reader.get("/v1/namespaces").json() == {"namespaces": [own]}
    assert plan(reader, PROMPT, "all")["hit_tokens"] == 0
