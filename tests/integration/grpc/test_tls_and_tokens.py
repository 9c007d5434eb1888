"""gRPC over TLS and with tokens: who may connect, with what, and what they may do."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import ServiceError, UnreachableError
from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from kvshelf_client.requests import CheckHealth, Stats
from kvshelf_client.transport import Tls, TransportOptions, transport_module
from service.settings import load_settings
from storage.clock import ManualClock
from tests.support.certificates import Authority, Pair
from tests.support.engine import blocks, tokens
from tests.support.grpc_engine import RefusedError, grpc_engine
from tests.support.live import Live, live
from tests.support.service import make_parts
from tests.support.tokens import two_tenants

DENIED, FORBIDDEN = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Live]:
    settings = load_settings(flags={"grpc": {"port": 0}}, environment={})
    parts = make_parts(tmp_path, ManualClock(), settings=settings, access=two_tenants())
    with live(parts) as face:
        yield face
    parts.close()


def refusal(face: Live, token: str | None, verb: str, request: object) -> tuple[grpc.StatusCode, int]:
    with grpc_engine(face.grpc_url, token) as engine, pytest.raises(RefusedError) as refused:
        engine.call(verb, request)  # type: ignore[arg-type]
    return refused.value.code, refused.value.problem.status


def test_nobody_gets_in_without_a_token_that_is_taken(guarded: Live) -> None:
    for token in (None, "", "nobody's"):
        assert refusal(guarded, token, "Stats", pb.StatsRequest()) == (DENIED, 401)
        assert refusal(guarded, token, "Plan", pb.PlanRequest(namespace="ns", tokens=tokens(9))) == (DENIED, 401)
        with grpc_engine(guarded.grpc_url, token) as engine:
            assert engine.call("Health", pb.HealthRequest()).status == "ok"


def test_a_scope_that_is_lacking_is_refused(guarded: Live) -> None:
    with grpc_engine(guarded.grpc_url, "a") as engine:
        engine.register()
    register = pb.RegisterRequest(name="x", model="m", profile_id="llama-3-8b")
    assert refusal(guarded, "a-read", "Register", register) == (FORBIDDEN, 403)
    assert refusal(guarded, "a-write", "Plan", pb.PlanRequest(namespace="ns", tokens=tokens(9))) == (FORBIDDEN, 403)
    with grpc_engine(guarded.grpc_url, "a-read") as reader, pytest.raises(RefusedError) as refused:
        reader.store(blocks(reader.keys_of(tokens(300))))
    assert refused.value.code is FORBIDDEN


def test_what_is_another_tenants_does_not_exist(guarded: Live) -> None:
    with grpc_engine(guarded.grpc_url, "a") as mine, grpc_engine(guarded.grpc_url, "b") as other:
        mine.register()
        planned = mine.plan(tokens(1000), request_id="r")
        for verb, request in (
            ("GetNamespace", pb.GetNamespaceRequest(name="ns")),
            ("Plan", pb.PlanRequest(namespace="ns", tokens=tokens(1000))),
            ("Renew", pb.RenewRequest(lease_id=planned.lease.lease_id)),
            ("Release", pb.ReleaseRequest(lease_id=planned.lease.lease_id)),
        ):
            with pytest.raises(RefusedError) as refused:
                other.call(verb, request)
            assert refused.value.code is grpc.StatusCode.NOT_FOUND, verb
        with pytest.raises(RefusedError):
            other.fetch(planned)
        assert list(other.call("ListNamespaces", pb.ListNamespacesRequest()).namespaces) == []
        mine.release(planned)


class Encrypted:
    """A service over TLS, and calls of it with the shipped transport."""

    def __init__(self, face: Live, authority: Authority) -> None:
        assert face.grpc_url is not None
        self.url, self.face, self.authority = face.grpc_url, face, authority

    def check(self, url: str | None = None, *, ca_file: Path | None = None, shown: Pair | None = None) -> str:
        files = [str(file) if file else None for file in (ca_file, *((shown.cert, shown.key) if shown else ()))]
        transport = transport_module("grpcs:").connect(url or self.url, TransportOptions(tls=Tls(*files)))
        try:
            return transport.call(CheckHealth(), Deadline(3)).status
        finally:
            transport.close()


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Authority, Pair]:
    authority = Authority(tmp_path)
    return authority, authority.issue("server")


def test_it_serves_over_tls(tmp_path: Path, pair: tuple[Authority, Pair]) -> None:
    authority, mine = pair
    flags = {"grpc": {"port": 0}, "tls": {"cert_file": mine.cert, "key_file": mine.key}}
    parts = make_parts(tmp_path, ManualClock(), settings=load_settings(flags=flags, environment={}))
    with live(parts) as face:
        served = Encrypted(face, authority)
        assert served.url.startswith("grpcs://127.0.0.1:")
        assert served.check(ca_file=authority.file) == "ok"
        for url in (served.url.replace("grpcs", "grpc"), None):
            with pytest.raises(UnreachableError):
                served.check(url)
    parts.close()


def test_with_authorities_of_clients_only_theirs_connect(tmp_path: Path, pair: tuple[Authority, Pair]) -> None:
    authority, mine = pair
    (tmp_path / "clients").mkdir()
    clients = Authority(tmp_path / "clients")
    flags = {
        "grpc": {"port": 0},
        "tls": {"cert_file": mine.cert, "key_file": mine.key, "client_ca_file": clients.file},
    }
    parts = make_parts(tmp_path, ManualClock(), settings=load_settings(flags=flags, environment={}))
    engine = clients.issue("engine", "engine.example")
    with live(parts) as face:
        served = Encrypted(face, authority)
        assert served.check(ca_file=authority.file, shown=engine) == "ok"
        for stranger in (None, mine):
            with pytest.raises(UnreachableError):
                served.check(ca_file=authority.file, shown=stranger)
    parts.close()


def serial_of(url: str, authority: Authority) -> str:
    """The serial number of the certificate a new connection is shown."""
    host, _, port = url.removeprefix("grpcs://").partition(":")
    context = ssl.create_default_context(cafile=str(authority.file))
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain, server_hostname=host) as tls:
        shown = tls.getpeercert()
    assert shown
    return str(shown["serialNumber"])


def test_a_renewed_certificate_is_shown_to_whoever_connects_next(tmp_path: Path, pair: tuple[Authority, Pair]) -> None:
    authority, mine = pair
    flags = {"grpc": {"port": 0}, "tls": {"cert_file": mine.cert, "key_file": mine.key}}
    parts = make_parts(tmp_path, ManualClock(), settings=load_settings(flags=flags, environment={}))
    with live(parts) as face:
        assert face.tls is not None
        served = Encrypted(face, authority)
        first = serial_of(served.url, authority)
        assert serial_of(served.url, authority) == first
        authority.issue("server")
        face.tls.refresh()
        assert serial_of(served.url, authority) != first
        assert served.check(ca_file=authority.file) == "ok"
    parts.close()


def test_a_tokens_problem_is_told_by_the_transport(guarded: Live) -> None:
    assert guarded.grpc_url is not None
    for token, status in ((None, 401), ("nobody's", 401), ("a-write", 403)):
        transport = transport_module("grpc:").connect(guarded.grpc_url, TransportOptions(token=token))
        with pytest.raises(ServiceError) as refused:
            transport.call(Stats(), Deadline(3))
        assert refused.value.status == status
        transport.close()
