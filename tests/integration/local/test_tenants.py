"""A descriptor is of a whole file: who gets one where there are tenants, and what can be read through it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from kvshelf_client import Client, NamespaceSpec, StoreRecord
from kvshelf_client.answers import LocalAddress
from kvshelf_client.local.peer import Opened, RefusedError, greet
from kvshelf_client.local.segments import Segments
from kvshelf_client.local.wire import PROTOCOL_VERSION, Open, Refusal
from kvshelf_client.words import Provenance, RecordClass
from service.access import Scope
from service.access.tokens import describe_entry
from service.settings import load_settings
from service.shelf.assemble import open_service
from storage.base import FileHold
from storage.clock import SystemClock
from tests.support.client import fetched, registered
from tests.support.live import Live, live
from tests.support.local import MAX_PAYLOAD_BYTES, Collector, do, local_face, soon
from tests.support.records import ids_of, make_records
from tests.support.tiers import FACTORIES
from tests.support.tokens import two_tenants

MIB = 1 << 20
BLOCK = 128
TOKENS = {name: f"kvs_{name}_{'0' * 64}" for name in ("apart", "shares", "writes")}
MARKS = {name: name[0].encode() * 128 for name in TOKENS}


@contextmanager
def guarded(directory: Path) -> Iterator[Live]:
    """A real service on a real disk: the tenant ``apart`` has a shelf of its own, the others share one."""
    scopes = {"writes": {Scope.WRITE}}
    entries = [
        describe_entry(token, name, frozenset(scopes.get(name, {Scope.READ, Scope.WRITE})), None)
        for name, token in TOKENS.items()
    ]
    file = directory / "tokens.toml"
    file.write_text("\n".join(entries))
    settings = load_settings(
        flags={
            "store": {"data_dir": directory / "data", "budget_bytes": 32 * MIB},
            "pool": {"budget_bytes": 2 * MIB},
            "access": {"token_file": file, "tenants": {"apart": {"store_budget_bytes": 16 * MIB}}},
        },
        environment={},
    )
    parts = open_service(settings, SystemClock())
    try:
        with live(parts, with_local=True) as running:
            yield running
    finally:
        parts.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Live]:
    with guarded(tmp_path) as running:
        yield running


def lease_of(service: Live, client: Client, tenant: str) -> str:
    """A lease on blocks of a tenant's own, which bear its mark."""
    spec = NamespaceSpec(tenant, "m", "1", "deepseek-v4.1-flash/fp4", BLOCK, 1)
    namespace = registered(client, "ns", spec)
    prompt = bytes(4 * BLOCK * 9)
    found = client.hash_tokens(namespace, prompt)
    assert found is not None
    records = [
        StoreRecord(RecordClass.BLOCK, key, (at + 1) * BLOCK, MARKS[tenant], Provenance.EXACT)
        for at, key in enumerate(found.keys)
    ]
    assert client.store(namespace, records, durable=False) is not None
    plan = client.plan(namespace, tokens=prompt)
    assert plan.lease is not None
    loaded, payloads = fetched(client, plan)
    assert loaded.fault is None
    assert set(payloads.values()) == {MARKS[tenant]}
    return plan.lease.lease_id


def address(service: Live) -> LocalAddress:
    assert service.context.local is not None
    return LocalAddress(PROTOCOL_VERSION, str(service.context.local.path), service.context.local.instance)


def refusal(service: Live, token: str | None, lease_id: str) -> Refusal:
    with pytest.raises(RefusedError) as refused:
        opened(service, token, lease_id)
    return refused.value.reason


def opened(service: Live, token: str | None, lease_id: str) -> Opened:
    """What the local face hands out."""
    peer = do(greet(address(service), token, MAX_PAYLOAD_BYTES, soon()))
    try:
        return do(peer.open(Open(lease_id, 0, False), Collector(), Segments(), soon()))
    finally:
        peer.channel.close()


def test_a_tenant_with_a_shelf_of_its_own_gets_descriptors_of_nothing_else(service: Live) -> None:
    with ExitStack() as stack:
        leases = {
            tenant: lease_of(
                service,
                stack.enter_context(Client(service.url, token=TOKENS[tenant], strict=True, budget_seconds=20)),
                tenant,
            )
            for tenant in ("shares", "apart")
        }
    records = service.parts.metrics.local_records._value.get()
    assert records == 8, "one of the two has fetched over the local path"
    for segment in set(opened(service, TOKENS["apart"], leases["apart"]).segments):
        everything = bytes(segment.view(0, segment.size_bytes))
        assert MARKS["apart"] in everything
        assert MARKS["shares"] not in everything
    assert refusal(service, TOKENS["apart"], leases["shares"]) is Refusal.UNKNOWN_LEASE
    assert refusal(service, TOKENS["shares"], leases["shares"]) is Refusal.ELSEWHERE
    assert refusal(service, TOKENS["shares"], leases["apart"]) is Refusal.ELSEWHERE


def test_who_may_not_read_is_turned_away(service: Live) -> None:
    for token in (None, "", "kvs_nobody_" + "1" * 64, TOKENS["writes"]):
        assert refusal(service, token, "any") is Refusal.DENIED


def test_the_rest_face_tells_only_those_who_may(service: Live) -> None:
    found = {
        name: httpx.get(f"{service.url}/v1/local", headers={"Authorization": f"Bearer {token}"}).status_code
        for name, token in TOKENS.items()
    }
    assert found == {"apart": 200, "shares": 404, "writes": 403}
    assert httpx.get(f"{service.url}/v1/local").status_code == 401


def test_a_token_that_is_taken_back_is_of_no_more_use(tmp_path: Path) -> None:
    """Also on a connection that was made with it."""
    access = two_tenants()
    with local_face(tmp_path, access) as face, face.peer("a") as peer:
        with pytest.raises(RefusedError) as refused:
            do(peer.renew("unknown", soon()))
        assert refused.value.reason is Refusal.UNKNOWN_LEASE
        access.take_back("a")
        with pytest.raises(RefusedError) as refused:
            do(peer.renew("unknown", soon()))
        assert refused.value.reason is Refusal.DENIED


def test_sealed_records_are_not_handed_out(tmp_path: Path) -> None:
    """A wrapper's hold is none on files, so what is sealed goes another way by construction."""
    sealed = [factory for factory in FACTORIES if "sealed" in factory.name and "ssd" in factory.name]
    assert sealed
    made = sealed[0](tmp_path, lambda: "")
    try:
        tier = made.make()
        records = make_records(range(3))
        tier.write(records, durable=False)
        hold = tier.hold(ids_of(records))
        assert not isinstance(hold, FileHold)
        hold.release()
    finally:
        made.close()
