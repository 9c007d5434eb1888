"""The shipped client finds the local path by itself, and goes another way whenever anything about it is odd."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvshelf_client import AsyncClient, Client, NamespaceSpec
from kvshelf_client.answers import LocalAddress
from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import DeadlineError, ServiceError, UnreachableError
from kvshelf_client.frames import checksum_of, pack_header
from kvshelf_client.http.aio import AsyncHttpTransport
from kvshelf_client.http.transport import HttpTransport
from kvshelf_client.local.aio import AsyncLocalTransport
from kvshelf_client.local.path import FIRST_PAUSE_SECONDS, LocalPath
from kvshelf_client.local.transport import LocalTransport
from kvshelf_client.local.wire import PROTOCOL_VERSION
from kvshelf_client.requests import Fetch
from kvshelf_client.transport import TransportOptions
from kvshelf_client.words import Provenance, RecordClass
from service.access import ANYBODY
from service.local.listener import listening
from service.local.server import LocalServer
from storage.base import Record
from storage.clock import ManualClock
from tests.integration.local.conftest import open_files, segments
from tests.support.live import Live, live
from tests.support.local import local_parts
from tests.support.page_cache import bring_in, drop
from tests.support.served import eventually
from tests.support.service import register
from tests.support.shelf import BLOCK, fill, plan
from tests.support.sinks import CollectingSink

BLOCKS = 6
OPTIONS = TransportOptions(connect_seconds=1.0)


@pytest.fixture
def transport(service: Live) -> Iterator[LocalTransport]:
    made = LocalTransport(HttpTransport(service.url, OPTIONS), OPTIONS)
    yield made
    made.close()


def leased(service: Live) -> str:
    """A lease of some blocks, which are in the page cache, and a snapshot."""
    namespace = register(service.parts)
    fill(service.parts, namespace, RecordClass.BLOCK, range(BLOCKS))
    fill(service.parts, namespace, RecordClass.SNAPSHOT, [BLOCKS - 1])
    bring_in(segments(service))
    lease = plan(service.parts, namespace, (BLOCKS + 1) * BLOCK + 100).lease
    assert lease.snapshot is not None
    return lease.lease_id


def by_service(service: Live) -> int:
    """How many blocks the service has sent itself."""
    return int(service.parts.metrics.fetched.labels("block", "hit", "none")._value.get())


def locally(service: Live) -> int:
    """How many blocks were leased over the local path."""
    return int(service.parts.metrics.local_records._value.get())


def fetched(transport: LocalTransport, lease_id: str, seconds: float = 20) -> CollectingSink:
    sink = CollectingSink()
    transport.call(Fetch(lease_id, sink), Deadline(seconds))
    return sink


def whole(service: Live, lease_id: str) -> CollectingSink:
    """What comes over HTTP."""
    sink, rest = CollectingSink(), HttpTransport(service.url, OPTIONS)
    rest.call(Fetch(lease_id, sink), Deadline(20))
    rest.close()
    return sink


def same(one: CollectingSink, other: CollectingSink) -> bool:
    return (one.headers, one.payloads) == (other.headers, other.payloads)


def test_a_fetch_goes_over_the_local_path_and_brings_the_same(service: Live, transport: LocalTransport) -> None:
    lease_id = leased(service)
    expected = whole(service, lease_id)
    before = by_service(service)
    for times in range(1, 4):
        assert same(fetched(transport, lease_id), expected)
        assert locally(service) == times * BLOCKS
    assert by_service(service) == before
    with pytest.raises(ServiceError) as unknown:
        fetched(transport, "none")
    assert unknown.value.status == 404
    with pytest.raises(ServiceError) as no_shard:
        transport.call(Fetch(lease_id, CollectingSink(), 7), Deadline(20))
    assert no_shard.value.status == 422
    assert same(fetched(transport, lease_id), expected)
    assert locally(service) == 4 * BLOCKS, "errors about a lease are no trouble of the path"


def test_on_an_event_loop(service: Live) -> None:
    lease_id = leased(service)
    expected = whole(service, lease_id)

    async def fetch_some() -> None:
        transport = AsyncLocalTransport(AsyncHttpTransport(service.url, OPTIONS), OPTIONS)
        sinks = [CollectingSink() for _ in range(20)]
        await asyncio.gather(*(transport.call(Fetch(lease_id, sink), Deadline(20)) for sink in sinks))
        assert all(same(sink, expected) for sink in sinks)
        await transport.close()

    asyncio.run(fetch_some())
    assert locally(service) == 20 * BLOCKS


def test_the_clients_pick_it_by_themselves(service: Live) -> None:
    spec = NamespaceSpec("test", "m", "1", "deepseek-v4.1-flash/fp4", BLOCK, 1)
    prompt = bytes(4 * BLOCK * 9)

    async def with_async_client() -> None:
        async with AsyncClient(service.url, strict=True, budget_seconds=20) as client:
            namespace = await client.register("mine", spec)
            assert namespace is not None
            asked = await client.plan(namespace, tokens=prompt)
            loaded = await client.fetch_into(asked, lambda slot: bytearray(namespace.bytes_of(slot.record_class)))
            assert loaded.fault is None

    for is_local in (True, False):
        before = locally(service)
        with Client(service.url, strict=True, budget_seconds=20, local=is_local) as client:
            namespace = client.register("mine", spec)
            assert namespace is not None
            found = client.hash_tokens(namespace, prompt)
            assert found is not None
            fill_keys(service, found.keys)
            asked = client.plan(namespace, tokens=prompt)
            assert client.fetch_into(asked, lambda slot: bytearray(BLOCK)).fault is None
        assert (locally(service) > before) == is_local
    before = locally(service)
    asyncio.run(with_async_client())
    assert locally(service) > before


def fill_keys(service: Live, keys: list[bytes]) -> None:
    """Store a block for each key."""
    namespace = service.parts.namespaces.get(ANYBODY, "mine")
    payload = bytes(namespace.shard_block_bytes)
    records = [Record(namespace.record_id(key, 0), payload, checksum_of(payload), Provenance.EXACT) for key in keys]
    service.parts.blocks.write(records, durable=False)


def test_what_is_not_in_memory_comes_through_the_service(service: Live) -> None:
    lease_id = leased(service)
    expected = whole(service, lease_id)

    def comes_through_the_service() -> bool:
        """The service itself brings a lease's blocks into memory, once and when it likes: then it is tried again."""
        drop(segments(service))
        before = by_service(service)
        transport = LocalTransport(HttpTransport(service.url, OPTIONS), OPTIONS)
        assert same(fetched(transport, lease_id), expected)
        transport.close()
        return by_service(service) == before + BLOCKS

    eventually(comes_through_the_service, 10)


@contextmanager
def socket_at(path: Path, serve: Callable[[socket.socket], None]) -> Iterator[LocalAddress]:
    """Something else that listens at a socket; ``serve`` is called with each connection."""
    path.parent.mkdir(exist_ok=True)
    with listening(path) as listener:

        def accept() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                with sock:
                    serve(sock)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield LocalAddress(PROTOCOL_VERSION, str(path), bytes(16))
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)


def _silent(sock: socket.socket) -> None:
    while sock.recv(4096):
        pass


def _garbage(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n" * 10)


def _hangs_up(sock: socket.socket) -> None:
    sock.recv(4096)


def _welcomes_and_hangs_up(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.sendall(b"KVSL\x01\x02\0\0\x10" + bytes(7) + bytes(16))
    sock.recv(4096)
    sock.sendall(b"KVSL\x01\x04\0\0")


def _promises_too_much(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.sendall(b"KVSL\x01\x02\0\0\x10" + bytes(7) + bytes(16))
    sock.recv(4096)
    sock.sendall(b"KVSL\x01\x06\0\0" + b"\xff" * 8)


def _of_another_version(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.sendall(b"KVSL\x02\x02\0\0\x10" + bytes(7) + bytes(16))


@pytest.mark.parametrize(
    "serve", [_silent, _garbage, _hangs_up, _welcomes_and_hangs_up, _promises_too_much, _of_another_version]
)
def test_whatever_answers_there_the_fetch_is_done_another_way(
    service: Live, transport: LocalTransport, tmp_path: Path, serve: Callable[[socket.socket], None]
) -> None:
    lease_id = leased(service)
    expected = whole(service, lease_id)
    with socket_at(tmp_path / "odd.sock", serve) as address:
        transport.path.found(address)
        assert same(fetched(transport, lease_id, seconds=2), expected), "within half of its time"
        assert not transport.path.is_there
        assert same(fetched(transport, lease_id), expected), "and it is left alone for a while"


def test_a_fetch_is_over_when_its_time_is(tmp_path: Path) -> None:
    """Neither the local face answers nor the service: not a moment later than asked."""
    with socket.create_server(("127.0.0.1", 0)) as deaf, socket_at(tmp_path / "odd.sock", _silent) as address:
        transport = LocalTransport(HttpTransport(f"http://127.0.0.1:{deaf.getsockname()[1]}", OPTIONS), OPTIONS)
        transport.path.found(address)
        deadline, late = Deadline(0.4), Deadline(0.4 + 2)
        with pytest.raises(DeadlineError):
            transport.call(Fetch("any", CollectingSink()), deadline)
        assert deadline.is_over
        assert not late.is_over
        transport.close()


@pytest.mark.parametrize(
    "address",
    [
        LocalAddress(PROTOCOL_VERSION, "/nowhere/at/all.sock", bytes(16)),
        LocalAddress(PROTOCOL_VERSION + 1, "/", bytes(16)),
        LocalAddress(PROTOCOL_VERSION, "", bytes(16)),
    ],
)
def test_an_address_that_is_none_of_this_machine(address: LocalAddress) -> None:
    clock = ManualClock()
    path = LocalPath(OPTIONS, clock.monotonic)
    assert path.is_sought
    path.found(address)
    assert not path.is_there
    clock.advance(59)
    assert not path.is_sought
    clock.advance(1)
    assert path.is_sought


def test_it_is_tried_again_after_a_pause_that_grows_and_is_short_again_once_it_serves(service: Live) -> None:
    clock = ManualClock()
    path = LocalPath(OPTIONS, clock.monotonic)
    pauses = []
    for _ in range(10):
        path.put_off()
        waited = 0.0
        while not path.is_sought:
            clock.advance(0.5)
            waited += 0.5
        pauses.append(waited)
    assert pauses[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert pauses[-1] == 60
    path.close()
    assert not path.is_sought


def test_a_service_that_was_started_again_is_found_again(tmp_path: Path) -> None:
    """The path is put off once, the fetch goes over HTTP, and after the pause the new instance is asked where it is."""
    clock = ManualClock()
    first = local_parts(tmp_path, ManualClock())
    with live(first, with_local=True) as running:
        transport = LocalTransport(HttpTransport(running.url, OPTIONS), OPTIONS, clock.monotonic)
        fetched(transport, leased(running))
        assert transport.path.is_there
        assert running.context.local is not None
        running.context.local.close()
        running.context.local = LocalServer(first)
        before = locally(running)
        for _ in range(2):
            assert len(fetched(transport, leased(running)).headers) == BLOCKS + 1
            assert not transport.path.is_there
        assert locally(running) == before
        clock.advance(FIRST_PAUSE_SECONDS)
        assert len(fetched(transport, leased(running)).headers) == BLOCKS + 1
        assert transport.path.is_there
        assert locally(running) == before + BLOCKS
    transport.close()
    first.close()


def test_threads_share_it_and_nothing_is_left_open(service: Live) -> None:
    lease_id = leased(service)
    expected = whole(service, lease_id)
    before = open_files()
    transport = LocalTransport(HttpTransport(service.url, OPTIONS), OPTIONS)
    right: list[bool] = []

    def fetch_some() -> None:
        for _ in range(10):
            right.append(same(fetched(transport, lease_id), expected))

    threads = [threading.Thread(target=fetch_some) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 160
    transport.close()
    assert eventually(lambda: len(open_files()) <= len(before), within_seconds=10)


def test_a_task_that_is_cancelled_lets_go(service: Live, tmp_path: Path) -> None:
    before = open_files()

    async def cancel_one(address: LocalAddress) -> None:
        transport = AsyncLocalTransport(AsyncHttpTransport(service.url, OPTIONS), OPTIONS)
        transport.path.found(address)
        task = asyncio.ensure_future(transport.call(Fetch("any", CollectingSink()), Deadline(60)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await transport.close()

    with socket_at(tmp_path / "odd.sock", _silent) as address:
        asyncio.run(cancel_one(address))
    assert eventually(lambda: len(open_files()) <= len(before), within_seconds=10)


def test_a_break_in_the_middle_is_an_error_that_may_be_tried_again(service: Live, tmp_path: Path) -> None:
    """Once something has come the fetch cannot begin anew under its sink; it is begun anew above, then another way."""

    def snapshot_and_no_more(sock: socket.socket) -> None:
        sock.recv(4096)
        sock.sendall(b"KVSL\x01\x02\0\0\x10" + bytes(7) + bytes(16))
        sock.recv(4096)
        sock.sendall(b"KVSL\x01\x06\0\0" + (len(head) + length).to_bytes(8, "little") + head)

    lease_id = leased(service)
    expected = whole(service, lease_id)
    head, length = pack_header(expected.headers[0]), expected.headers[0].length_bytes
    transport = LocalTransport(HttpTransport(service.url, OPTIONS), OPTIONS)
    with socket_at(tmp_path / "odd.sock", snapshot_and_no_more) as address:
        transport.path.found(address)
        sink = CollectingSink()
        with pytest.raises(UnreachableError):
            transport.call(Fetch(lease_id, sink), Deadline(20))
        assert len(sink.headers) == 1
        assert same(fetched(transport, lease_id), expected)
    transport.close()
