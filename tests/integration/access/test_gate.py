"""Nobody gets beyond the gate without a token that is taken, and nobody with one does what it is not for."""

import re
from collections.abc import Callable

import httpx
import pytest

from service.rest.gate import OPEN_PATHS
from tests.support.live import Live

AsToken = Callable[[str], httpx.Client]
KEY = "00" * 32
NEEDS = {
    "GET /v1/namespaces": "read",
    "GET /v1/namespaces/{name}": "read",
    "PUT /v1/namespaces/{name}": "write",
    "POST /v1/namespaces/{name}/hash": "read",
    "POST /v1/namespaces/{name}/plan": "read",
    "POST /v1/namespaces/{name}/store": "write",
    "POST /v1/namespaces/{name}/touch": "read",
    "POST /v1/namespaces/{name}/delete": "write",
    "GET /v1/namespaces/{name}/records/{kind}/{key}": "read",
    "HEAD /v1/namespaces/{name}/records/{kind}/{key}": "read",
    "PUT /v1/namespaces/{name}/records/{kind}/{key}": "write",
    "DELETE /v1/namespaces/{name}/records/{kind}/{key}": "write",
    "GET /v1/leases/{lease_id}/fetch": "read",
    "POST /v1/leases/{lease_id}/touch": "read",
    "DELETE /v1/leases/{lease_id}": "read",
    "GET /v1/local": "read",
    "GET /v1/erasures": "admin",
    "POST /v1/erasures": "admin",
    "GET /v1/erasures/{erasure_id}": "admin",
    "GET /metrics": "operator",
    "GET /v1/overview": "operator",
    "GET /v1/stats": "read",
}
"""What routes ask for."""
PLACES = {"name": "n", "kind": "block", "key": KEY}
"""What stands in a path; anything else will do for the rest."""


def address(route: str) -> tuple[str, str]:
    method, path = route.split()
    return method, re.sub(r"{(\w+)}", lambda place: PLACES.get(place[1], "x"), path)


def send(client: httpx.Client, route: str) -> httpx.Response:
    method, path = address(route)
    query = {"end_tokens": "128"} if method == "PUT" and "records" in path else {}
    body = b'{"class": "block", "keys": []}' if path.endswith(("touch", "delete")) else b"{}"
    if path.startswith("/v1/leases"):
        body = b""
    return client.request(method, path, params=query, content=body, headers={"Content-Type": "application/json"})


def test_every_route_asks_for_something(as_token: AsToken) -> None:
    client = as_token("a-nothing")
    paths = client.get("/openapi.json").json()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    routes -= {f"GET {path}" for path in OPEN_PATHS}
    assert routes >= set(NEEDS)
    assert {route: send(client, route).status_code for route in routes} == dict.fromkeys(routes, 403)


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer x", "Basic YTpi", "a", "Bearer a b"])
def test_without_a_token_that_is_taken_every_path_is_a_401(face: Live, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    with httpx.Client(base_url=face.url, headers=headers) as client:
        for route in [*NEEDS, "GET /openapi.json", "GET /no-such-route", "PATCH /v1/namespaces"]:
            answer = client.request(*address(route))
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == 'Bearer realm="kvshelf"'
            assert answer.headers["content-type"] == "application/problem+json"
            if not route.startswith("HEAD"):
                assert answer.json()["status"] == 401


@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
def test_health_and_readiness_are_open(face: Live, path: str) -> None:
    assert httpx.get(face.url + path).status_code in (200, 204)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_taken_in_any_case(face: Live, scheme: str) -> None:
    assert httpx.get(f"{face.url}/v1/namespaces", headers={"Authorization": f"{scheme} a"}).status_code == 200


@pytest.mark.parametrize("token", ["a-read", "a-write", "a-admin", "a", "operator"])
def test_a_token_does_what_its_scopes_say_and_no_more(as_token: AsToken, token: str) -> None:
    client = as_token(token)
    for route, need in NEEDS.items():
        answer = send(client, route)
        is_allowed = token == "operator" or (need != "operator" and (token == "a" or token.endswith(need)))
        assert (answer.status_code != 403) is is_allowed, route
        if not is_allowed and not route.startswith("HEAD"):
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["title"] == "Forbidden"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/v1/namespaces", "/no-such-route"])
def test_without_tokens_only_this_machine_is_asked_for(unguarded: Live, path: str) -> None:
    url = unguarded.url + path
    for headers in ({"Host": "evil.example"}, {"Host": "evil.example:8710"}, {"Origin": "http://evil.example"}):
        answer = httpx.get(url, headers=headers)
        assert answer.status_code == 421
        assert answer.headers["content-type"] == "application/problem+json"
        assert "access.allowed_hosts" in answer.json()["detail"]
    for headers in ({}, {"Host": "localhost"}, {"Host": "[::1]:1"}, {"Origin": unguarded.url}):
        assert httpx.get(url, headers=headers).status_code != 421
    denied = unguarded.parts.metrics.registry.get_sample_value("kvshelf_access_denied_total", {"reason": "host"})
    assert denied == 3


def test_with_tokens_any_host_may_be_asked_for(face: Live) -> None:
    headers = {"Host": "kvshelf.example", "Authorization": "Bearer a"}
    assert httpx.get(f"{face.url}/v1/namespaces", headers=headers).status_code == 200
