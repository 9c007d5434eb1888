"""The DRAM pool on a real Redis: full, evicting, shared, meddled with; and records in parts."""

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis

from kvshelf_client.words import MissReason, Provenance
from storage.base import Loaded, Record, WriteOutcome
from storage.clock import ManualClock
from storage.dram import RedisTier
from storage.dram.header import HEADER_BYTES
from tests.support.observers import RecordingObserver
from tests.support.records import (
    EXACT,
    REPLAYED,
    entry_of,
    fetch,
    ids_of,
    look,
    make_id,
    make_record,
    make_records,
    reasons,
)
from tests.support.redis_server import RedisServer, let_time_pass, read_bytes

MIB = 1 << 20
TTL_SECONDS = 600.0
PREFIX = "pool:"


class Bench:
    """A private server, tiers on it, and a client to meddle with."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.client: Redis = server.client()
        self.clock = ManualClock()
        self.observer = RecordingObserver()
        self.tiers: list[RedisTier] = []

    def make(self, *, part_bytes: int = 8 * MIB, entropy: Callable[[int], bytes] = os.urandom) -> RedisTier:
        """A tier on the server; all of a bench share records, clock and observer."""
        tier = RedisTier(
            url=self.server.url,
            clock=self.clock,
            ttl_seconds=TTL_SECONDS,
            observer=self.observer,
            prefix=PREFIX,
            timeout_seconds=10.0,
            part_bytes=part_bytes,
            entropy=entropy,
        )
        self.tiers.append(tier)
        return tier

    def key(self, number: int) -> str:
        """The name of a record's value."""
        return f"{PREFIX}1:{{{make_id(number).key.hex()}.0}}"

    def names(self) -> list[str]:
        """Every key on the server, sorted."""
        return sorted(key.decode() for key in self.client.scan_iter(count=1000))

    def advance(self, seconds: float) -> None:
        """Let time pass here and on the server."""
        self.clock.advance(seconds)
        let_time_pass(self.client, PREFIX, seconds)

    def close(self) -> None:
        """Close everything; no key may have been left without an expiry."""
        endless = [key for key in self.names() if self.client.pttl(key) == -1]
        for tier in self.tiers:
            tier.close()
        self.client.close()
        self.server.close()
        assert not endless


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(RedisServer())
    yield made
    made.close()


@pytest.fixture
def full_bench() -> Iterator[Bench]:
    made = Bench(RedisServer(maxmemory_bytes=24 * MIB, policy="noeviction"))
    yield made
    made.close()


@pytest.fixture
def lru_bench() -> Iterator[Bench]:
    made = Bench(RedisServer(maxmemory_bytes=24 * MIB, policy="allkeys-lru"))
    yield made
    made.close()


def test_a_full_server_is_full_and_not_down(full_bench: Bench) -> None:
    tier = full_bench.make()
    results = [tier.write([make_record(number, size=MIB)], durable=True)[0] for number in range(40)]
    outcomes = [result.outcome for result in results]
    stored = outcomes.count(WriteOutcome.STORED)
    assert 10 < stored < 30
    assert outcomes == [WriteOutcome.STORED] * stored + [WriteOutcome.FULL] * (40 - stored)
    assert full_bench.observer.faults == {"full": 40 - stored}
    assert tier.is_up()
    assert reasons(tier.lookup([make_id(stored)])) == [MissReason.NEVER_STORED]
    assert fetch(tier, [make_id(0)]) == [make_record(0, size=MIB).payload]
    assert tier.touch([make_id(0), make_id(39)]) == 1, "a touch needs no room"
    assert tier.write([make_record(0, size=MIB)], durable=True)[0].outcome is WriteOutcome.DUPLICATE
    full_bench.clock.advance(2)
    usage = tier.usage()
    assert usage.budget_bytes == 24 * MIB
    assert usage.live_bytes == stored * MIB < usage.used_bytes < 26 * MIB
    assert tier.delete([make_id(number) for number in range(5)]) == 5
    assert tier.write([make_record(39, size=MIB)], durable=True)[0].outcome is WriteOutcome.STORED
    tier.check_integrity()


def test_a_full_server_keeps_the_replayed_record_and_no_stray_parts(full_bench: Bench) -> None:
    tier = full_bench.make(part_bytes=2 * MIB)
    old = make_record(0, size=5 * MIB, provenance=REPLAYED)
    tier.write([old, *(make_record(number, size=MIB) for number in range(1, 15))], durable=True)
    before = full_bench.names()
    (result,) = tier.write([make_record(0, size=5 * MIB, content=7)], durable=True)
    assert (result.outcome, result.generation) == (WriteOutcome.FULL, entry_of(tier, old.id).generation)
    assert full_bench.names() == before
    assert fetch(tier, [old.id]) == [old.payload]
    (result,) = tier.write([make_record(90, size=11 * MIB)], durable=True)
    assert (result.outcome, result.generation) == (WriteOutcome.FULL, 0)
    assert full_bench.names() == before


def test_what_redis_evicts_is_an_evicted_miss(lru_bench: Bench) -> None:
    tier = lru_bench.make()
    for number in range(60):
        assert tier.write([make_record(number, size=MIB)], durable=True)[0].outcome is WriteOutcome.STORED
    found = look(tier, *range(60))
    gone = found.count(MissReason.EVICTED)
    assert 30 < gone < 55
    assert found.count(None) == 60 - gone
    assert look(tier, 99) == [MissReason.NEVER_STORED]
    assert lru_bench.observer.evicted_records == {"budget": gone}
    assert lru_bench.observer.evicted_bytes == {"budget": gone * MIB}
    assert tier.usage().live_bytes == (60 - gone) * MIB
    lost = found.index(MissReason.EVICTED)
    assert fetch(tier, [make_id(lost)]) == [MissReason.EVICTED]
    assert tier.touch([make_id(lost)]) == 0
    again = make_record(lost, size=MIB)
    assert tier.write([again], durable=True)[0].outcome is WriteOutcome.STORED
    assert fetch(tier, [again.id]) == [again.payload]


def test_upkeep_counts_what_redis_dropped_unasked(bench: Bench) -> None:
    tier = bench.make()
    tier.write(make_records(range(600)), durable=True)
    for number in range(100):
        bench.client.delete(bench.key(number))
    for _ in range(3):
        tier.maintain()
    assert bench.observer.evicted_records == {"budget": 100}
    assert (tier.usage().records, tier.usage().live_bytes) == (500, 500_000)
    bench.advance(TTL_SECONDS + 1)
    for _ in range(3):
        tier.maintain()
    assert bench.observer.evicted_records == {"budget": 100, "expired": 500}
    assert tier.usage().records == 0


def test_a_large_record_lies_in_parts_that_share_its_life(bench: Bench) -> None:
    tier = bench.make(part_bytes=MIB)
    sizes = {1: MIB, 2: MIB + 1, 3: 2 * MIB, 4: 2 * MIB + 1}
    records = [make_record(number, size=size) for number, size in sizes.items()]
    assert {result.outcome for result in tier.write(records, durable=True)} == {WriteOutcome.STORED}
    counts = [sum(key.startswith(bench.key(number)) for key in bench.names()) for number in sizes]
    assert counts == [1, 3, 3, 4], "one value, and one a part above the part size"
    assert fetch(tier, ids_of(records)) == [record.payload for record in records]
    bench.advance(TTL_SECONDS - 1)
    assert tier.touch(ids_of(records)) == 4
    assert tier.write(records[:1], durable=True)[0].outcome is WriteOutcome.DUPLICATE
    bench.advance(TTL_SECONDS - 1)
    assert tier.write([records[3]], durable=True)[0].outcome is WriteOutcome.DUPLICATE
    assert fetch(tier, ids_of(records)) == [record.payload for record in records]
    bench.advance(2)
    assert look(tier, 1, 2, 3, 4) == [MissReason.EXPIRED] * 3 + [None]
    assert fetch(tier, [make_id(4)]) == [records[3].payload]
    assert tier.delete([make_id(4)]) == 1
    assert bench.names() == []


def test_another_process_renews_all_parts_too(bench: Bench) -> None:
    writer, other = bench.make(part_bytes=MIB), bench.make(part_bytes=3 * MIB)
    record = make_record(1, size=2 * MIB + 5)
    writer.write([record], durable=True)
    bench.advance(TTL_SECONDS - 1)
    assert other.touch([record.id]) == 1
    bench.advance(TTL_SECONDS - 1)
    assert fetch(other, [record.id]) == [record.payload]
    assert look(writer, 1) == [None]


def test_a_use_renews_all_parts(bench: Bench) -> None:
    tier = bench.make(part_bytes=MIB)
    record = make_record(1, size=2 * MIB + 5)
    tier.write([record], durable=True)
    bench.advance(TTL_SECONDS - 1)
    (used,) = tier.use(tier.hold([record.id]), 0, 1)
    assert isinstance(used, Loaded)
    assert bytes(used.payload) == record.payload
    bench.advance(TTL_SECONDS - 1)
    assert fetch(tier, [record.id]) == [record.payload]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_lost_part_is_a_miss_and_takes_the_rest_along(bench: Bench, lost: int) -> None:
    tier = bench.make(part_bytes=MIB)
    record = make_record(1, size=2 * MIB + 5)
    tier.write([record, make_record(2)], durable=True)
    parts = [key for key in bench.names() if key.startswith(bench.key(1) + ":")]
    bench.client.delete(parts[lost])
    assert fetch(tier, [record.id, make_id(2)]) == [MissReason.EVICTED, make_record(2).payload]
    assert look(tier, 1, 2) == [MissReason.EVICTED, None]
    assert bench.names() == [bench.key(2)]
    assert bench.observer.evicted_records == {"budget": 1}
    assert tier.usage().live_bytes == 1000
    assert tier.write([record], durable=True)[0].outcome is WriteOutcome.STORED
    assert fetch(tier, [record.id]) == [record.payload]


def test_a_part_of_another_length_or_type_is_a_miss(bench: Bench) -> None:
    tier = bench.make(part_bytes=MIB)
    record = make_record(1, size=2 * MIB + 5)
    for meddle in ("shorter", "list", "flipped"):
        tier.write([record], durable=True)
        part = next(key for key in bench.names() if key.startswith(bench.key(1) + ":"))
        if meddle == "flipped":
            bench.client.setrange(part, 77, b"\x00\x01\x02")
        else:
            bench.client.delete(part)
        if meddle == "shorter":
            bench.client.set(part, b"x" * (MIB - 1), px=1000)
        if meddle == "list":
            bench.client.rpush(part, "x")
            bench.client.pexpire(part, 1000)
        assert fetch(tier, [record.id])[0] in (MissReason.EVICTED, MissReason.CORRUPT)
        assert bench.key(1) not in bench.names()


def test_replacing_a_record_in_parts_leaves_only_the_new_one(bench: Bench) -> None:
    tier = bench.make(part_bytes=MIB)
    old = make_record(1, size=3 * MIB, provenance=REPLAYED)
    tier.write([old], durable=True)
    hold = tier.hold([old.id])
    new = make_record(1, size=3 * MIB, content=5)
    assert tier.write([new], durable=True)[0].outcome is WriteOutcome.REPLACED
    assert len(bench.names()) == 4
    assert fetch(tier, [new.id]) == [new.payload]
    assert tier.write([old], durable=True)[0].outcome is WriteOutcome.DUPLICATE
    assert len(bench.names()) == 4, "a duplicate leaves no parts behind"
    (loaded,) = hold.read(0, 1)
    assert getattr(loaded, "payload", None) == new.payload


def _flip(bench: Bench, offset: int) -> None:
    (byte,) = read_bytes(bench.client, bench.key(1), offset, offset)
    bench.client.setrange(bench.key(1), offset, bytes([byte ^ 0x10]))


@pytest.mark.parametrize(
    "meddling", ["foreign", "short", "list", "hash", "cut", "longer", "other id", *range(0, 152, 7)]
)
@pytest.mark.parametrize("verb", ["lookup", "read"])
def test_a_value_that_fails_its_checks_is_corrupt_and_goes(bench: Bench, meddling: str | int, verb: str) -> None:
    tier = bench.make()
    tier.write(make_records([1, 2]), durable=True)
    hold = tier.hold([make_id(1), make_id(2)])
    key = bench.key(1)
    if isinstance(meddling, int):
        _flip(bench, meddling)
    elif meddling in ("cut", "longer"):
        value = read_bytes(bench.client, key)
        bench.client.set(key, value[:-1] if meddling == "cut" else value + b"x", px=5000)
        if verb == "lookup":
            assert look(tier, 1) == [None], "the header is sound; only a read sees it"
            verb = "read"
    elif meddling == "other id":
        bench.client.copy(bench.key(2), key, replace=True)
    else:
        bench.client.delete(key)
        if meddling == "list":
            bench.client.rpush(key, "x")
        elif meddling == "hash":
            bench.client.hset(key, "a", "b")
        else:
            bench.client.set(key, b"x" * (1 if meddling == "short" else 3000))
    expected = [MissReason.CORRUPT, None]
    results = reasons(hold.read(0, 2)) if verb == "read" else look(tier, 1, 2)
    assert results == expected
    assert bench.names() == [bench.key(2)], "dropped"
    assert look(tier, 1, 2) == expected
    assert bench.observer.faults == {"corrupt": 1}
    assert bench.observer.evicted_records == {"corrupt": 1}
    assert tier.write(make_records([1]), durable=True)[0].outcome is WriteOutcome.STORED
    assert look(tier, 1) == [None]


@pytest.mark.parametrize("provenance", [EXACT, REPLAYED])
@pytest.mark.parametrize("foreign", [b"", b"x" * 3000])
def test_a_write_takes_the_place_of_a_foreign_value(bench: Bench, provenance: Provenance, foreign: bytes) -> None:
    tier = bench.make()
    bench.client.set(bench.key(1), foreign)
    record = make_record(1, provenance=provenance)
    assert tier.write([record], durable=True)[0].outcome is WriteOutcome.STORED
    assert fetch(tier, [record.id]) == [record.payload]
    assert tier.usage().records == 1
    tier.check_integrity()


def test_processes_share_records_and_learn_of_each_other(bench: Bench) -> None:
    here, there = bench.make(), bench.make()
    record = make_record(1, owner="acme", supersedes=b"p" * 32)
    (stored,) = here.write([record], durable=True)
    assert there.usage().records == 0
    entry = entry_of(there, record.id)
    assert (entry.generation, entry.supersedes) == (stored.generation, b"p" * 32)
    assert (there.usage().records, there.usage().owners) == (1, {"acme": 1000})
    assert there.write([record], durable=True)[0] == (record.id, WriteOutcome.DUPLICATE, stored.generation)
    assert there.delete([record.id]) == 1
    assert look(here, 1) == [MissReason.EVICTED], "gone before its time, and not by this process"
    assert look(there, 1) == [MissReason.NEVER_STORED]
    assert here.usage().records == 0


def test_a_lookup_moves_headers_only(bench: Bench) -> None:
    tier = bench.make()
    tier.write([make_record(number, size=MIB) for number in range(8)], durable=True)

    def sent() -> int:
        return int(bench.client.info("stats")["total_net_output_bytes"])

    before = sent()
    overhead = sent() - before
    before = sent()
    assert look(tier, *range(8)) == [None] * 8
    assert sent() - before - overhead < 8 * (HEADER_BYTES + 100)


def test_racing_writers_never_lose_the_exact_record(bench: Bench) -> None:
    tiers = [bench.make() for _ in range(4)]
    rounds, rng = 60, random.Random(3)
    plans: list[list[Record]] = []
    for who in range(4):
        plan = [
            make_record(number, provenance=EXACT if who == 0 else REPLAYED, content=1000 * who + number, size=200 + who)
            for number in range(rounds)
        ]
        rng.shuffle(plan)
        plans.append(plan * 2)

    def work(who: int) -> set[str]:
        outcomes = set()
        for record in plans[who]:
            outcomes.add(tiers[who].write([record], durable=False)[0].outcome.value)
            if who == 3:
                tiers[who].touch([record.id])
        return outcomes

    with ThreadPoolExecutor(4) as pool:
        outcomes = set().union(*pool.map(work, range(4)))
    assert outcomes <= {"stored", "replaced", "duplicate"}
    exact = [make_record(number, content=number, size=200) for number in range(rounds)]
    assert {entry_of(tiers[1], record.id).provenance for record in exact} == {EXACT}
    assert fetch(tiers[2], ids_of(exact)) == [record.payload for record in exact]
    for tier in tiers:
        tier.lookup(ids_of(exact))
        tier.check_integrity()


def test_of_racing_exact_writers_over_one_replayed_record_one_replaces_it(bench: Bench) -> None:
    tiers = [bench.make() for _ in range(6)]
    for number in range(10):
        tiers[0].write([make_record(number, provenance=REPLAYED)], durable=False)
        writes = [make_record(number, content=100 * number + who) for who in range(6)]
        with ThreadPoolExecutor(6) as pool:
            results = list(pool.map(lambda tier, record: tier.write([record], durable=False)[0], tiers, writes))
        outcomes = [result.outcome for result in results]
        assert sorted(outcomes) == ["duplicate"] * 5 + ["replaced"]
        assert len({result.generation for result in results}) == 1
        winner = outcomes.index(WriteOutcome.REPLACED)
        assert fetch(tiers[3], [make_id(number)]) == [writes[winner].payload]


@pytest.mark.parametrize("size", [1000, 3 * MIB], ids=["inline", "parts"])
@pytest.mark.parametrize("first", [EXACT, REPLAYED])
@pytest.mark.parametrize("second", [EXACT, REPLAYED])
def test_a_writer_that_comes_between_a_look_and_a_write(
    bench: Bench, size: int, first: Provenance, second: Provenance
) -> None:
    """The generation is drawn after the look and before the write: there the other writer strikes."""
    quick = bench.make(part_bytes=MIB)
    early = make_record(1, size=size, provenance=first)

    def strike(count: int) -> bytes:
        quick.write([early], durable=False)
        bench.advance(TTL_SECONDS - 1)
        return os.urandom(count)

    slow = bench.make(part_bytes=MIB, entropy=strike)
    late = make_record(1, size=size, provenance=second, content=2)
    (result,) = slow.write([late], durable=False)
    wins = second > first
    assert result.outcome is (WriteOutcome.REPLACED if wins else WriteOutcome.DUPLICATE)
    bench.advance(2)
    assert fetch(quick, [late.id]) == [late.payload if wins else early.payload], "renewed, or written anew"
    assert entry_of(quick, late.id).generation == result.generation
    assert len(bench.names()) == (1 if size == 1000 else 4), "the loser's parts are gone"


def test_a_record_that_goes_between_a_look_and_a_write_is_written(bench: Bench) -> None:
    quick = bench.make()
    record = make_record(1)
    quick.write([record], durable=False)

    def strike(count: int) -> bytes:
        quick.delete([record.id])
        return os.urandom(count)

    (result,) = bench.make(entropy=strike).write([record], durable=False)
    assert result.outcome is WriteOutcome.STORED
    assert entry_of(quick, record.id).generation == result.generation
