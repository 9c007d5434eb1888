"""A pool of several servers: a cluster whose slots move and whose masters die, and a master that Sentinels replace."""

from collections.abc import Iterator
from functools import partial

import pytest

from kvshelf_client.words import MissReason
from storage.base import Loaded, Miss, RecordId, Tier, WriteOutcome
from storage.breaker import BreakerTier
from storage.clock import SystemClock
from storage.dram import RedisTier
from tests.support.observers import RecordingObserver
from tests.support.records import fetch, look, make_id, make_record, make_records
from tests.support.redis_cluster import RedisCluster, WatchedPair
from tests.support.served import eventually

CLOCK = SystemClock()
NUMBERS = range(60)
AGAIN_SECONDS = 5.0
"""How soon after the servers are whole the pool must be used again."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    cluster = RedisCluster()
    yield cluster
    cluster.close()


def open_tier(url: str) -> RedisTier:
    return RedisTier(url=url, clock=CLOCK, ttl_seconds=600, observer=RecordingObserver(), timeout_seconds=1.0)


def is_well_again(tier: Tier) -> bool:
    """After a step of upkeep, as the service does one a second."""
    tier.maintain()
    return tier.trouble() is None


@pytest.fixture
def tier(cluster: RedisCluster) -> Iterator[RedisTier]:
    tier = open_tier(cluster.url)
    tier.delete([make_id(number) for number in NUMBERS])
    yield tier
    tier.close()


def write(tier: RedisTier, numbers: range) -> list[WriteOutcome]:
    return [result.outcome for result in tier.write(make_records(numbers), durable=True)]


def test_records_are_spread_over_the_masters_and_found(cluster: RedisCluster, tier: RedisTier) -> None:
    assert write(tier, NUMBERS) == [WriteOutcome.STORED] * len(NUMBERS)
    assert write(tier, NUMBERS) == [WriteOutcome.DUPLICATE] * len(NUMBERS)
    assert fetch(tier, [make_id(number) for number in NUMBERS]) == [record.payload for record in make_records(NUMBERS)]
    sizes = []
    for server in cluster.masters():
        with server.client() as client:
            sizes.append(client.dbsize())
    assert len(sizes) == 3
    assert all(sizes)
    assert tier.usage().budget_bytes == 0
    assert tier.usage().used_bytes > 3 << 19, "the memory of all three"
    tier.check_integrity()
    assert tier.delete([make_id(number) for number in NUMBERS]) == len(NUMBERS)
    assert look(tier, *NUMBERS) == [MissReason.NEVER_STORED] * len(NUMBERS)


def test_all_names_are_gone_through_once(tier: RedisTier) -> None:
    write(tier, NUMBERS)
    found: list[RecordId] = []
    cursor: bytes | None = b""
    while cursor is not None:
        page = tier.scan(b"", cursor, 7)
        found += [entry.id for entry in page.entries]
        cursor = page.cursor
    assert set(found) == {make_id(number) for number in NUMBERS}


def test_slots_move_under_a_pool_in_use(cluster: RedisCluster, tier: RedisTier) -> None:
    write(tier, NUMBERS)
    first, second, _ = cluster.masters()
    cluster.move_slots(first, second, 3000)
    assert fetch(tier, [make_id(number) for number in NUMBERS]) == [record.payload for record in make_records(NUMBERS)]
    assert write(tier, range(100, 160)) == [WriteOutcome.STORED] * 60
    assert tier.touch([make_id(number) for number in NUMBERS]) == len(NUMBERS)
    tier.check_integrity()
    assert not tier._observer.faults  # type: ignore[attr-defined]
    tier.delete([make_id(number) for number in range(100, 160)])


def test_a_frozen_master_takes_its_own_slots_with_it_and_nobody_waits_long(
    cluster: RedisCluster, tier: RedisTier
) -> None:
    pool = BreakerTier(tier, CLOCK, jitter=lambda: 0.0, serves_in_part=True)
    write(tier, NUMBERS)
    frozen = cluster.masters()[0]
    frozen.freeze()
    try:
        found = pool.lookup([make_id(number) for number in NUMBERS])
        missed = [one for one in found if isinstance(one, Miss)]
        assert 0 < len(missed) < len(NUMBERS)
        assert {one.reason for one in missed} == {MissReason.TIER_DOWN}
        assert pool.is_up()
        assert "1 of 3 masters" in (pool.trouble() or "")
    finally:
        frozen.thaw()
    cluster.wait_until_whole()
    everything = [make_id(number) for number in NUMBERS]
    eventually(lambda: all(not isinstance(one, Miss) for one in pool.lookup(everything)), AGAIN_SECONDS)
    eventually(partial(is_well_again, pool), AGAIN_SECONDS)


def test_a_master_dies_and_its_replica_takes_over(cluster: RedisCluster, tier: RedisTier) -> None:
    write(tier, NUMBERS)
    everything = [make_id(number) for number in NUMBERS]
    dead = cluster.masters()[0]
    with dead.client() as client:
        client.wait(1, 2000)
    dead.stop()
    try:
        for one in tier.hold(everything).read(0, len(everything)):
            assert isinstance(one, Loaded) or one.reason is MissReason.TIER_DOWN
        cluster.wait_until_whole()
        eventually(lambda: all(not isinstance(one, Miss) for one in tier.lookup(everything)), AGAIN_SECONDS)
        assert write(tier, range(200, 260)) == [WriteOutcome.STORED] * 60
        eventually(partial(is_well_again, tier), AGAIN_SECONDS)
    finally:
        dead.start()
        cluster.wait_until_whole()
        tier.delete([make_id(number) for number in range(200, 260)])


def test_a_cluster_that_is_not_there_is_down_and_found_when_it_comes() -> None:
    cluster = RedisCluster(replicas=0)
    tier = open_tier(cluster.url)
    for server in cluster.servers:
        server.freeze()
    assert look(tier, 1) == [MissReason.TIER_DOWN]
    assert tier.write([make_record(1)], durable=True)[0].outcome is WriteOutcome.TIER_DOWN
    assert not tier.is_up()
    for server in cluster.servers:
        server.thaw()
    cluster.wait_until_whole()
    eventually(lambda: write(tier, range(1, 2)) == [WriteOutcome.STORED], AGAIN_SECONDS)
    assert tier.is_up()
    tier.close()
    with pytest.raises(ValueError, match="closed"):
        tier.lookup([make_id(1)])
    cluster.close()


def test_sentinels_name_another_master_and_the_pool_follows() -> None:
    pair = WatchedPair()
    tier = open_tier(pair.url)
    try:
        assert write(tier, NUMBERS) == [WriteOutcome.STORED] * len(NUMBERS)
        with pair.master.client() as client:
            assert client.wait(1, 5000) == 1
        pair.master.stop()
        assert look(tier, 1) == [MissReason.TIER_DOWN]
        pair.wait_for_failover()
        eventually(partial(_all_there, tier), AGAIN_SECONDS)
        assert write(tier, range(100, 110)) == [WriteOutcome.STORED] * 10
        assert tier.trouble() is None
    finally:
        tier.close()
        pair.close()


def _all_there(tier: RedisTier) -> bool:
    return look(tier, *NUMBERS) == [None] * len(NUMBERS)
