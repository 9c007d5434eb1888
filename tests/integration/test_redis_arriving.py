"""What the DRAM pool tells of a payload while it comes from a real Redis, through a network that cuts and stalls."""

import threading
from collections.abc import Iterator

import pytest

from kvshelf_client.words import MissReason
from storage.base import Entry, Loaded, Miss, Tier
from storage.breaker import BreakerTier
from storage.clock import SystemClock
from storage.dram import RedisTier
from storage.dram.header import HEADER_BYTES
from tests.support.observers import RecordingObserver
from tests.support.proxy import Proxy
from tests.support.records import make_record
from tests.support.redis_server import RedisServer

SIZE = 2_000_000
TIMEOUT_SECONDS = 0.5
SLACK_SECONDS = 1.0
CLOCK = SystemClock()
RECORD = make_record(1, size=SIZE)


class Told:
    """How much it was told of, in order."""

    def __init__(self, pause_seconds: float = 0.0) -> None:
        self.counts: list[int] = []
        self.entries: set[Entry] = set()
        self._pause_seconds = pause_seconds

    def __call__(self, entry: Entry, payload: memoryview, arrived_bytes: int) -> None:
        assert payload[:arrived_bytes] == RECORD.payload[:arrived_bytes]
        self.counts.append(arrived_bytes)
        self.entries.add(entry)
        threading.Event().wait(self._pause_seconds)


class Bench:
    """A server behind a proxy, and a tier on it that has a record."""

    def __init__(self, server: RedisServer, proxy: Proxy) -> None:
        self.server, self.proxy = server, proxy
        self.observer = RecordingObserver()
        self.tier = self.make()
        self.tier.write([RECORD], durable=True)

    def make(self, part_bytes: int = 8 << 20) -> RedisTier:
        return RedisTier(
            url=self.proxy.url,
            clock=CLOCK,
            ttl_seconds=60,
            observer=self.observer,
            timeout_seconds=TIMEOUT_SECONDS,
            part_bytes=part_bytes,
        )

    def use(self, told: Told, tier: Tier | None = None, trouble: int | None = None) -> bytes | MissReason:
        """Use the record; with ``trouble`` the connection is cut after so many bytes of the answer."""
        tier = tier or self.tier
        hold = tier.hold([RECORD.id])
        self.proxy.cut_after_bytes = trouble
        (found,) = tier.use(hold, 0, 1, told)
        self.proxy.cut_after_bytes = None
        return bytes(found.payload) if isinstance(found, Loaded) else found.reason


@pytest.fixture
def bench() -> Iterator[Bench]:
    server = RedisServer()
    try:
        with Proxy(server.port) as proxy:
            made = Bench(server, proxy)
            yield made
            made.tier.close()
    finally:
        server.close()


def test_a_payload_is_told_of_bit_by_bit_and_as_whole_once(bench: Bench) -> None:
    bench.proxy.delay_seconds = 0.003
    told = Told()
    assert bench.use(told) == RECORD.payload
    assert len(told.counts) > 3
    assert told.counts[0] < SIZE // 2
    assert told.counts[-1] == SIZE
    assert len(told.entries) == 1


def test_a_payload_in_parts_is_there_at_once(bench: Bench) -> None:
    tier = bench.make(part_bytes=500_000)
    tier.delete([RECORD.id])
    tier.write([RECORD], durable=True)
    told = Told()
    assert bench.use(told, tier) == RECORD.payload
    assert not told.counts
    tier.close()


@pytest.mark.parametrize("after_bytes", [0, 5, 100, 500_000, SIZE, SIZE + HEADER_BYTES + 9, SIZE + HEADER_BYTES + 12])
@pytest.mark.parametrize("is_guarded", [False, True])
def test_a_connection_that_breaks_is_a_miss_and_one_fault(bench: Bench, after_bytes: int, is_guarded: bool) -> None:
    """The answer is the value between a line of ten bytes and a line end, and the one to the renewal."""
    told = Told()
    tier = BreakerTier(bench.tier, CLOCK, jitter=lambda: 0.0, faults_to_open=2) if is_guarded else bench.tier
    assert bench.use(told, tier, trouble=max(1, after_bytes)) is MissReason.TIER_DOWN
    assert SIZE not in told.counts
    assert bench.observer.faults == {"unreachable": 1}
    again = Told()
    assert bench.use(again, tier) == RECORD.payload
    assert again.counts[-1] == SIZE
    assert bench.observer.moved_bytes["read"] == SIZE


def test_a_server_that_falls_silent_is_waited_for_no_longer_than_ever(bench: Bench) -> None:
    told, came = Told(), 0

    def fall_silent(piece: bytes) -> bytes:
        nonlocal came
        came += len(piece)
        bench.proxy.is_silent = came > SIZE // 2
        return piece

    hold = bench.tier.hold([RECORD.id])
    bench.proxy.delay_seconds = 0.003
    bench.proxy.spoil = fall_silent
    before = CLOCK.monotonic()
    assert bench.tier.use(hold, 0, 1, told) == [Miss(RECORD.id, MissReason.TIER_DOWN)]
    assert CLOCK.monotonic() - before < TIMEOUT_SECONDS + SLACK_SECONDS
    assert 0 < max(told.counts) < SIZE
    assert bench.observer.faults == {"timeout": 1}


def test_the_time_of_who_is_told_is_not_redis_s(bench: Bench) -> None:
    bench.proxy.delay_seconds = 0.003
    told = Told(pause_seconds=TIMEOUT_SECONDS)
    assert bench.use(told) == RECORD.payload
    assert len(told.counts) > 1
    assert not bench.observer.faults


def test_a_bit_that_flips_in_redis_is_never_told_of_as_whole(bench: Bench) -> None:
    hold = bench.tier.hold([RECORD.id])
    with bench.server.client() as client:
        (name,) = client.scan_iter()
        client.setrange(name, SIZE - 5, b"\xff\x00")
    bench.proxy.delay_seconds = 0.003
    told = Told()
    assert bench.tier.use(hold, 0, 1, told) == [Miss(RECORD.id, MissReason.CORRUPT)]
    assert 0 < max(told.counts) < SIZE
    assert bench.observer.faults == {"corrupt": 1}
    assert bench.observer.evicted_records == {"corrupt": 1}


def test_a_server_that_takes_no_renewals_is_read_twice_and_told_of_once(bench: Bench) -> None:
    with bench.server.client() as client:
        client.replicaof("127.0.0.1", "1")
    told = Told()
    assert bench.use(told) == RECORD.payload
    assert told.counts == sorted(set(told.counts))
    assert SIZE not in told.counts, "what was read in the end is another copy"
    again = Told()
    assert bench.use(again) == RECORD.payload
    assert not again.counts
