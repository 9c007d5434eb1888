"""The DRAM pool when its Redis is stopped, frozen, restarted, or does not let it in."""

import threading
import traceback
from collections.abc import Callable, Iterator

import pytest

from kvshelf_client.circuit import BreakerState
from kvshelf_client.words import MissReason
from storage.base import Loaded, Tier, WriteOutcome
from storage.breaker import BreakerTier
from storage.clock import SystemClock
from storage.dram import RedisTier
from storage.dram.ailment import Ailment
from storage.dram.link import LinkDownError, RedisLink
from storage.dram.place import pool_place
from tests.support.observers import RecordingObserver
from tests.support.records import fetch, look, make_id, make_record, make_records, reasons
from tests.support.redis_server import RedisServer

TIMEOUT_SECONDS = 0.2
SLACK_SECONDS = 0.4
"""What a busy machine may take on top, for scheduling this process."""

DOWN = MissReason.TIER_DOWN
CLOCK = SystemClock()


@pytest.fixture
def server() -> Iterator[RedisServer]:
    made = RedisServer()
    yield made
    made.close()


def make(url: str, observer: RecordingObserver | None = None) -> RedisTier:
    return RedisTier(url=url, clock=CLOCK, ttl_seconds=60, observer=observer, timeout_seconds=TIMEOUT_SECONDS)


def behind_breaker(tier: Tier) -> BreakerTier:
    return BreakerTier(tier, CLOCK, jitter=lambda: 0.0)


def link_of(tier: RedisTier) -> RedisLink:
    """The link of a tier on one server."""
    assert isinstance(tier._link, RedisLink)
    return tier._link


def verbs(tier: Tier) -> dict[str, Callable[[], bool]]:
    """Every verb, as a call that is true when it was answered as by a tier that is down."""
    big = [make_record(9, size=20_000_000), make_record(8)]
    return {
        "lookup": lambda: look(tier, 1, 2) == [DOWN, DOWN],
        "many": lambda: set(look(tier, *range(2000))) == {DOWN},
        "hold": lambda: fetch(tier, [make_id(1)]) == [DOWN],
        "write": lambda: tier.write(make_records([3]), durable=True)[0].outcome is WriteOutcome.TIER_DOWN,
        "big write": lambda: {one.outcome for one in tier.write(big, durable=True)} == {WriteOutcome.TIER_DOWN},
        "touch": lambda: tier.touch([make_id(1), make_id(77)]) == 0,
        "delete": lambda: tier.delete([make_id(1)]) == 0,
        "maintain": lambda: tier.maintain() is None,
        "usage": lambda: tier.usage().pinned_bytes == 0,
        "check_integrity": lambda: tier.check_integrity() is None,
    }


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> float:
    """Wait for a condition; the seconds it took. Fails when it does not come true."""
    pause, start = threading.Event(), CLOCK.monotonic()
    while not condition():
        assert CLOCK.monotonic() - start < seconds, f"not within {seconds} seconds"
        pause.wait(0.02)
    return CLOCK.monotonic() - start


def test_every_verb_of_a_stopped_server_answers_at_once(server: RedisServer) -> None:
    observer = RecordingObserver()
    tier = make(server.url, observer)
    tier.write(make_records([1]), durable=True)
    assert tier.is_up()
    hold = tier.hold([make_id(1), make_id(50)])
    server.stop()
    for name, call in verbs(tier).items():
        start = CLOCK.monotonic()
        assert call(), name
        assert CLOCK.monotonic() - start < SLACK_SECONDS, name
    assert reasons(hold.read(0, 2)) == [DOWN, MissReason.NEVER_STORED]
    assert not tier.is_up()
    assert observer.faults["unreachable"] >= 8
    assert set(observer.faults) == {"unreachable"}
    assert tier.trouble() == Ailment.UNREACHABLE.words
    tier.close()


def test_a_tier_may_be_made_before_its_server_is_there(server: RedisServer) -> None:
    server.stop()
    tier = make(server.url)
    assert look(tier, 1) == [DOWN]
    server.start()
    assert tier.write(make_records([1]), durable=True)[0].outcome is WriteOutcome.STORED
    assert tier.is_up()
    tier.close()


@pytest.mark.parametrize("is_connected", [False, True])
def test_every_verb_of_a_frozen_server_keeps_to_its_time(server: RedisServer, is_connected: bool) -> None:
    observer = RecordingObserver()
    tier = make(server.url, observer)
    if is_connected:
        tier.write(make_records([1]), durable=True)
        tier.usage()
    server.freeze()
    try:
        for name, call in verbs(tier).items():
            start = CLOCK.monotonic()
            assert call(), name
            assert CLOCK.monotonic() - start < TIMEOUT_SECONDS + SLACK_SECONDS, name
    finally:
        server.thaw()
    assert observer.faults["timeout"] >= 8
    assert tier.trouble() == Ailment.TIMEOUT.words
    eventually(lambda: look(tier, 1) != [DOWN])
    assert tier.is_up()
    tier.close()


def test_late_answers_never_meet_the_next_question(server: RedisServer) -> None:
    tier = make(server.url)
    records = make_records([1, 2, 3])
    tier.write(records, durable=True)
    for _ in range(3):
        server.freeze()
        assert fetch(tier, [make_id(1)]) == [DOWN]
        server.thaw()
        eventually(lambda: look(tier, 2) == [None])
        assert fetch(tier, [make_id(2), make_id(3)]) == [records[1].payload, records[2].payload]
    tier.close()


def test_the_breaker_opens_at_once_and_closes_by_itself(server: RedisServer) -> None:
    tier = behind_breaker(make(server.url))
    tier.write(make_records([1]), durable=True)
    server.stop()
    for _ in range(3):
        assert look(tier, 1) == [DOWN]
    assert tier.state is BreakerState.OPEN
    assert not tier.is_up()
    start = CLOCK.monotonic()
    for _ in range(200):
        assert look(tier, 1) == [DOWN]
    assert CLOCK.monotonic() - start < TIMEOUT_SECONDS
    server.start()
    eventually(lambda: look(tier, 1) != [DOWN], seconds=5.0)
    assert tier.is_up()
    assert tier.write(make_records([1]), durable=True)[0].outcome is WriteOutcome.STORED
    tier.close()


def test_a_frozen_server_is_found_again_by_upkeep_alone(server: RedisServer) -> None:
    tier = behind_breaker(make(server.url))
    tier.write(make_records([1]), durable=True)
    server.freeze()
    for _ in range(3):
        tier.maintain()
    assert not tier.is_up()
    server.thaw()

    def is_found() -> bool:
        tier.maintain()
        return tier.is_up()

    eventually(is_found, seconds=5.0)
    assert look(tier, 1) == [None]
    tier.close()


def test_a_server_that_takes_no_renewals_is_read_from(server: RedisServer) -> None:
    tier, record = make(server.url), make_record(1)
    tier.write([record], durable=True)
    with server.client() as client:
        client.replicaof("127.0.0.1", "1")
    for _ in range(2):
        (used,) = tier.use(tier.hold([record.id]), 0, 1)
        assert isinstance(used, Loaded)
        assert bytes(used.payload) == record.payload
    assert tier.is_up()
    tier.close()


def test_a_server_that_comes_back_empty_is_empty(server: RedisServer) -> None:
    observer = RecordingObserver()
    tier = make(server.url, observer)
    tier.write(make_records([1, 2, 3]), durable=True)
    before = tier.lookup([make_id(1)])[0]
    server.stop()
    server.start()
    assert look(tier, 1, 99) == [MissReason.EVICTED, MissReason.NEVER_STORED]
    tier.maintain()
    assert observer.evicted_records == {"budget": 3}
    usage = tier.usage()
    assert (usage.records, usage.live_bytes, usage.owners) == (0, 0, {})
    (result,) = tier.write(make_records([1]), durable=True)
    assert result.outcome is WriteOutcome.STORED
    assert result.generation != getattr(before, "generation", 0)
    tier.check_integrity()
    tier.close()


@pytest.mark.parametrize("given", ["", "wr0ng-one"])
def test_who_is_not_let_in_is_down_and_says_no_password(given: str) -> None:
    server = RedisServer(password="right-one")
    observer = RecordingObserver()
    tier = make(server.url_with(given), observer)
    try:
        for name, call in verbs(tier).items():
            assert call(), name
        assert not tier.is_up()
        assert observer.faults["denied"] >= 8
        assert tier.trouble() == Ailment.DENIED.words
        with pytest.raises(LinkDownError) as caught:
            link_of(tier).ask([(b"PING",)])
        said = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(tier) + repr(link_of(tier))
        said += repr(vars(link_of(tier))) + repr(link_of(tier)._pool) + repr(link_of(tier)._pool.connection_kwargs)
        assert "127.0.0.1" in said
        assert not given or given not in said
        assert "right-one" not in said
    finally:
        tier.close()
        server.close()


def test_the_right_password_lets_in_and_is_never_shown() -> None:
    server = RedisServer(password="right-one")
    for url in (server.url, server.unix_url):
        tier = make(url)
        assert tier.write([make_record(1)], durable=True)[0].outcome in (WriteOutcome.STORED, WriteOutcome.DUPLICATE)
        assert fetch(tier, [make_id(1)]) == [make_record(1).payload]
        said = repr(tier) + repr(vars(tier)) + repr(vars(link_of(tier))) + repr(link_of(tier)._pool)
        server.freeze()
        with pytest.raises(LinkDownError) as caught:
            link_of(tier).ask([(b"PING",)])
        server.thaw()
        said += "".join(traceback.format_exception(caught.value))
        assert "right-one" not in said
        tier.close()
    server.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://:hunter2@localhost/0",
        "redis://:hunter2@localhost:seven/0",
        "redis://:hunter2@localhost:99999/0",
        "redis://:hunter2@localhost/0?socket_timeout=9",
        "redis://:hunter2@localhost/0?retry_on_timeout=yes",
        "redis://:hunter2@localhost/0?db=x",
        "redis+cluster://:hunter2@localhost:7000,localhost:x",
        "redis+cluster://:hunter2@localhost:7000/0",
        "redis+cluster://:hunter2@",
        "redis+sentinel://:hunter2@localhost:26379",
        "redis+sentinel://:hunter2@localhost:26379/",
        "redis+else://:hunter2@localhost",
        "hunter2",
        "",
    ],
)
def test_a_bad_url_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        pool_place(url)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value)).replace(repr(url), "")
    assert "hunter2" not in str(caught.value)


def test_threads_share_few_connections(server: RedisServer) -> None:
    observer = RecordingObserver()
    tier = RedisTier(
        url=server.url, clock=CLOCK, ttl_seconds=60, observer=observer, timeout_seconds=10.0, max_connections=2
    )
    tier.write(make_records([1]), durable=True)
    seen: list[MissReason | None] = []
    threads = [threading.Thread(target=lambda: seen.extend(look(tier, 1))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [None] * 12
    assert not observer.faults
    with server.client() as client:
        assert client.info("clients")["connected_clients"] <= 3
    tier.close()
