"""A snapshot that is sent while Redis is still sending it, and all that may go wrong in the middle of that."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import MSG_WAITALL
from typing import Any

import httpx
import pytest

from kvshelf_client import Client, NamespaceSpec
from kvshelf_client.frames import HEADER_BYTES, FrameHeader, FrameKind, checksum_of, unpack_header
from service.settings import load_settings
from storage.clock import ManualClock, SystemClock
from storage.dram import RedisTier
from storage.dram.header import HEADER_BYTES as VALUE_HEADER_BYTES
from tests.support.client import Buffers, registered
from tests.support.engine import BLOCK, PROFILE, fetch, frame, keys_of, metric, plan, register, release, split, store
from tests.support.engine import tokens as prompt_of
from tests.support.live import Live, live
from tests.support.observers import RecordingObserver
from tests.support.proxy import Proxy
from tests.support.raw_http import SOON, ask_for, connected, read_answer
from tests.support.redis_server import RedisServer
from tests.support.served import eventually
from tests.support.service import make_parts

SNAPSHOT_BYTES, BLOCK_BYTES = 1_351_680, BLOCK * 890
PATIENT_SECONDS, SHORT_SECONDS = 20.0, 0.4
"""How long Redis is waited for: a busy machine is no fault, but where it is silent nobody wants to wait long."""
CONNECTIONS = 2
PAYLOAD = random.Random(1).randbytes(SNAPSHOT_BYTES)
BLOCK_PAYLOAD = b"b" * BLOCK_BYTES
PROMPT = prompt_of(1000)
TAKEN = 'kvshelf_fetched_records_total{class="snapshot",reason="none",result="hit"}'
LOST = 'kvshelf_fetched_records_total{class="snapshot",reason="%s",result="miss"}'
FETCHES = 'kvshelf_fetches_total{answer="%s"}'


class Bench:
    """A service whose pool is a Redis behind a proxy, with blocks and a snapshot of a prompt."""

    def __init__(self, server: RedisServer, proxy: Proxy, face: Live, http: httpx.Client) -> None:
        self.server, self.proxy, self.face, self.http = server, proxy, face, http
        self.faults = Counter[str]()
        register(http, bytes_per_token=None)
        planned, self.keys = plan(http, PROMPT), keys_of(http, PROMPT)
        frames = b"".join(
            frame(key, (number + 1) * BLOCK, payload=BLOCK_PAYLOAD) for number, key in enumerate(self.keys)
        )
        frames += frame(self.keys[-1], len(self.keys) * BLOCK, kind=FrameKind.SNAPSHOT, payload=PAYLOAD)
        store(http, frames, plan_id=planned["plan"]["plan_id"])
        release(http, planned)

    def plan(self, held_tokens: int = 896) -> dict[str, Any]:
        """A plan that loads the snapshot and the blocks that are not held, none by default."""
        planned = plan(self.http, prompt_of(1100), hbm_tokens=held_tokens, hbm_exact_tokens=held_tokens)
        assert planned["plan"]["load"] == {"global": [held_tokens, 896], "snapshot": 896}
        return planned

    def frames(self, planned: dict[str, Any]) -> list[tuple[FrameHeader, bytes, bool]]:
        """What a fetch brings, and whether each payload is sound; all of the announced length has come."""
        data = self.http.get(f"/v1/leases/{planned['lease']['lease_id']}/fetch").content
        found, at = [], 0
        while at < len(data):
            header = unpack_header(data[at : at + HEADER_BYTES])
            at += HEADER_BYTES + header.length_bytes
            payload = data[at - header.length_bytes : at]
            found.append((header, payload, checksum_of(payload) == header.checksum))
        assert at == len(data)
        return found

    def figures(self, reason: str) -> list[float]:
        """Snapshots sent, missed for that reason, and fetches by what they answered."""
        samples = [TAKEN, LOST % reason, FETCHES % "plan", FETCHES % "fallback"]
        return [metric(self.http, sample) for sample in samples]


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    clock = ManualClock()
    settings = load_settings(environment={}, flags={"pool": {"request_seconds": PATIENT_SECONDS}})
    server = RedisServer()
    try:
        with Proxy(server.port) as proxy:
            observer = RecordingObserver()
            pool = RedisTier(
                url=proxy.url,
                clock=clock,
                ttl_seconds=3600,
                observer=observer,
                timeout_seconds=getattr(request, "param", PATIENT_SECONDS),
                max_connections=CONNECTIONS,
            )
            parts = make_parts(tmp_path, clock, settings=settings, snapshots=pool)
            with live(parts) as face, httpx.Client(base_url=face.url, timeout=30) as http:
                made = Bench(server, proxy, face, http)
                made.faults = observer.faults
                yield made
            parts.close()
    finally:
        server.close()


@pytest.mark.parametrize("held_tokens", [0, 896])
def test_a_sound_snapshot_comes_whole_and_is_counted_once(bench: Bench, held_tokens: int) -> None:
    planned = bench.plan(held_tokens)
    for _ in range(3):
        frames = fetch(bench.http, planned)
        assert frames[0][0].kind is FrameKind.SNAPSHOT
        assert frames[0][1] == PAYLOAD
        assert [header.end_tokens for header, _ in frames[1:]] == list(range(held_tokens + BLOCK, 897, BLOCK))
    assert bench.figures("tier_down") == [3, 0, 3, 0]
    assert not bench.faults


def test_its_beginning_is_with_the_client_while_redis_has_the_end(bench: Bench) -> None:
    planned, came = bench.plan(), 0

    def stop_at_half(piece: bytes) -> bytes:
        nonlocal came
        came += len(piece)
        if came > SNAPSHOT_BYTES // 2:
            assert half_came.wait(SOON), "the client got nothing"
        return piece

    half_came = threading.Event()
    bench.proxy.delay_seconds = 0.002
    bench.proxy.spoil = stop_at_half
    with connected(bench.face, 1 << 20) as sock:
        sock.sendall(ask_for(planned))
        first = sock.recv(SNAPSHOT_BYTES // 4, MSG_WAITALL)
        half_came.set()
        assert first.startswith(b"HTTP/1.1 200 ")
        rest = b""
        while len(first + rest) < first.index(b"\r\n\r\n") + 4 + HEADER_BYTES + SNAPSHOT_BYTES:
            rest += sock.recv(1 << 20)
    ((_, payload),) = split((first + rest).partition(b"\r\n\r\n")[2])
    assert payload == PAYLOAD


@pytest.mark.parametrize("held_tokens", [0, 896])
@pytest.mark.parametrize("after_bytes", [5, 400_000, SNAPSHOT_BYTES, SNAPSHOT_BYTES + VALUE_HEADER_BYTES + 12])
def test_a_redis_that_goes_in_the_middle_is_a_miss_and_the_fallback_is_right(
    bench: Bench, held_tokens: int, after_bytes: int
) -> None:
    """The last cut is behind the whole value: sound as it is, it counts as missed, and so it has to for the client."""
    planned = bench.plan(held_tokens)
    bench.proxy.delay_seconds = 0.001
    bench.proxy.cut_after_bytes = after_bytes
    (header, _, is_sound), *others = bench.frames(planned)
    if header.kind is FrameKind.SNAPSHOT:
        assert not is_sound
        assert len(others) == (896 - held_tokens) // BLOCK
        assert bench.figures("tier_down") == [0, 1, 1, 0]
    else:
        assert after_bytes == 5, "not a byte of it was there"
        assert bench.figures("tier_down") == [0, 1, 0, 1]
    assert bench.faults == {"unreachable": 1}
    bench.proxy.delay_seconds = 0.0
    (header, document), *right = fetch(bench.http, planned, fallback=True)
    assert (header.kind, b"bounded_replay" in document) == (FrameKind.FALLBACK, True)
    assert all(payload == BLOCK_PAYLOAD for _, payload in right)
    assert release(bench.http, planned)["replay"] == 128
    assert fetch(bench.http, bench.plan(held_tokens))[0][1] == PAYLOAD, "it is still there, and so is Redis"
    assert bench.faults == {"unreachable": 1}


@pytest.mark.parametrize("bench", [SHORT_SECONDS], indirect=True)
def test_a_redis_that_falls_silent_in_the_middle_holds_nobody_up(bench: Bench) -> None:
    planned, came, clock = bench.plan(), 0, SystemClock()

    def fall_silent(piece: bytes) -> bytes:
        nonlocal came
        came += len(piece)
        bench.proxy.is_silent = came > SNAPSHOT_BYTES // 2
        return piece

    bench.proxy.delay_seconds, bench.proxy.spoil = 0.002, fall_silent
    before = clock.monotonic()
    ((header, _, is_sound),) = bench.frames(planned)
    assert clock.monotonic() - before < 5 * SHORT_SECONDS
    assert (header.kind, is_sound) == (FrameKind.SNAPSHOT, False)
    assert bench.faults == {"timeout": 1}
    bench.proxy.is_silent, bench.proxy.spoil = False, lambda piece: piece
    assert bench.figures("tier_down") == [0, 1, 1, 0]


def test_a_snapshot_that_is_bad_in_the_middle_goes_and_is_bad_for_the_client(bench: Bench) -> None:
    planned = bench.plan()
    with bench.server.client() as client:
        (name,) = client.scan_iter()
        client.setrange(name, SNAPSHOT_BYTES // 2, b"\x00" * 8)
        bench.proxy.delay_seconds = 0.001
        ((header, _, is_sound),) = bench.frames(planned)
        assert (header.kind, is_sound) == (FrameKind.SNAPSHOT, False)
        assert not client.exists(name)
    assert bench.figures("corrupt") == [0, 1, 1, 0]
    assert bench.faults == {"corrupt": 1}
    assert fetch(bench.http, planned, fallback=True)[0][0].kind is FrameKind.FALLBACK
    assert plan(bench.http, prompt_of(1100))["plan"]["mode"] == "bounded_replay"


@pytest.mark.parametrize("after_bytes", [300_000, 1_200_000])
def test_the_client_falls_back_by_itself(bench: Bench, after_bytes: int) -> None:
    with Client(bench.face.url, strict=True, budget_seconds=20) as client:
        namespace = registered(client, "ns", NamespaceSpec(None, "m", "1", PROFILE, BLOCK, None))
        planned = client.plan(namespace, tokens=prompt_of(1100))
        assert planned.resume.load.snapshot_boundary == 896
        bench.proxy.delay_seconds = 0.001
        bench.proxy.cut_after_bytes = after_bytes
        buffers = Buffers(namespace)
        loaded = client.fetch_into(planned, buffers)
        assert (loaded.has_snapshot, loaded.resume.mode) == (False, "bounded_replay")
        assert [record.reason for record in loaded.records] == [None] * 7
        assert all(bytes(buffers.of[record.slot]) == BLOCK_PAYLOAD for record in loaded.records)


def test_clients_that_take_nothing_have_neither_redis_nor_a_thread(bench: Bench) -> None:
    """Ten that ask for more than two sockets take, and do not read it, and two connections to Redis."""
    planned = bench.plan()
    stalled = []
    try:
        for _ in range(10):
            connection = connected(bench.face, 4096)
            stalled.append((connection, connection.__enter__()))
            stalled[-1][1].sendall(4 * ask_for(planned))
        eventually(lambda: bench.face.context.stalled_bytes > 0, SOON)
        assert fetch(bench.http, planned)[0][1] == PAYLOAD
        for _, sock in stalled:
            for _ in range(4):
                ((_, payload),) = split(read_answer(sock)[1])
                assert payload == PAYLOAD
    finally:
        for connection, _ in stalled:
            connection.__exit__(None, None, None)
    assert bench.face.context.stalled_bytes == 0
    assert not bench.faults


def test_a_client_that_leaves_in_the_middle_costs_redis_nothing(bench: Bench) -> None:
    planned = bench.plan()
    bench.proxy.delay_seconds = 0.002
    for _ in range(3):
        with connected(bench.face) as sock:
            sock.sendall(ask_for(planned))
            assert sock.recv(1000).startswith(b"HTTP/1.1 200 ")
    eventually(lambda: bench.face.context.under_way == 0, SOON)
    bench.proxy.delay_seconds = 0.0
    assert fetch(bench.http, planned)[0][1] == PAYLOAD
    assert not bench.faults
    assert bench.figures("tier_down") == [4, 0, 4, 0]


def test_many_at_once_share_few_connections(bench: Bench) -> None:
    planned = bench.plan()
    with ThreadPoolExecutor(12) as crowd:
        payloads = list(crowd.map(lambda _: fetch(bench.http, planned)[0][1], range(48)))
    assert all(payload == PAYLOAD for payload in payloads)
    assert not bench.faults
    assert len(bench.proxy.accepted_at) <= CONNECTIONS


def test_what_cannot_be_opened_is_an_answer_and_the_connection_lives_on(bench: Bench) -> None:
    planned = bench.plan()
    with connected(bench.face) as sock:
        for _ in range(2):
            sock.sendall(b"GET /v1/leases/none/fetch HTTP/1.1\r\nhost: localhost\r\n\r\n" + ask_for(planned))
            head, body = read_answer(sock)
            assert head.startswith(b"http/1.1 404 ")
            assert b"lease" in body
            assert split(read_answer(sock)[1])[0][1] == PAYLOAD


def test_what_is_superseded_goes_when_all_was_sent(bench: Bench) -> None:
    longer, planned = keys_of(bench.http, prompt_of(1200)), plan(bench.http, prompt_of(1200))
    frames = frame(longer[7], 1024, payload=BLOCK_PAYLOAD)
    frames += frame(longer[7], 1024, kind=FrameKind.SNAPSHOT, payload=PAYLOAD)
    store(bench.http, frames, plan_id=planned["plan"]["plan_id"], supersedes=bench.keys[-1])
    release(bench.http, planned)
    planned = plan(bench.http, prompt_of(1200), hbm_tokens=1024, hbm_exact_tokens=1024)
    assert planned["plan"]["load"]["snapshot"] == 1024
    path = f"/v1/namespaces/ns/records/snapshot/{bench.keys[-1]}"
    assert bench.http.head(path).status_code == 200
    assert fetch(bench.http, planned)[0][1] == PAYLOAD
    assert bench.http.head(path).status_code == 404


def test_a_redis_that_only_reads_is_read_twice_and_sent_once(bench: Bench) -> None:
    planned = bench.plan()
    with bench.server.client() as client:
        client.replicaof("127.0.0.1", "1")
    bench.proxy.delay_seconds = 0.001
    for _ in range(2):
        assert fetch(bench.http, planned)[0][1] == PAYLOAD
    assert bench.figures("tier_down") == [2, 0, 2, 0]
