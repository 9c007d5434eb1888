"""Kill -9 while clients store: what was acknowledged is there again, every byte is right, the accounts add up."""

import hashlib
import struct
import threading
from dataclasses import dataclass, field
from random import Random

from kvshelf_client import Client, NamespaceSpec, StoreRecord
from kvshelf_client.answers import Namespace
from kvshelf_client.errors import KvshelfError
from kvshelf_client.hashing import block_keys
from kvshelf_client.words import Provenance, RecordClass
from storage.clock import SystemClock
from storage.ssd import SsdTier
from tests.integration.process.conftest import Serve
from tests.support.engine import BLOCK, PROFILE
from tests.support.served import SMALL_BUDGET_BYTES, Served

KILLS = 10
WRITERS = 4
BLOCKS_A_STORE = 40
LEAST_STORES_A_ROUND = 12
BYTES_PER_TOKEN = 37
"""Blocks of 4,736 bytes: more than a page on disk, and no multiple of one."""
SPEC = NamespaceSpec(tenant="kill", model="m", weights_revision="1", profile=PROFILE, bytes_per_token=BYTES_PER_TOKEN)


def prompt_of(number: int) -> bytes:
    """A prompt of its own for every number; all of its stored blocks are loaded by a plan."""
    return struct.pack("<I", number) * (BLOCKS_A_STORE * BLOCK + 129)


def payload_of(key: bytes) -> bytes:
    """The bytes of a block, all over different for every key."""
    return hashlib.shake_128(key).digest(BYTES_PER_TOKEN * BLOCK)


@dataclass
class Ledger:
    """What the writers sent, and what of it the service acknowledged, by the number of the prompt."""

    namespace: Namespace
    acknowledged: set[int] = field(default_factory=set)
    sent: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)


def keys_of(ledger: Ledger, number: int) -> list[bytes]:
    return block_keys(ledger.namespace.fingerprint, prompt_of(number), BLOCK)[:BLOCKS_A_STORE]


def write_until_it_dies(url: str, ledger: Ledger, numbers: range) -> None:
    """Store one prompt after the other, durably."""
    with Client(url) as client:
        for number in numbers:
            records = [
                StoreRecord(RecordClass.BLOCK, key, (at + 1) * BLOCK, payload_of(key), Provenance.EXACT)
                for at, key in enumerate(keys_of(ledger, number))
            ]
            ledger.sent.add(number)
            try:
                result = client.store("kill", records)
            except KvshelfError:
                return
            if {outcome.outcome for outcome in result.outcomes} != {"stored"}:
                ledger.wrong.append(f"prompt {number}: {result.outcomes}")
            ledger.acknowledged.add(number)
            if len(ledger.acknowledged) >= LEAST_STORES_A_ROUND:
                ledger.enough.set()


def read_until_it_dies(url: str, ledger: Ledger, seed: int) -> None:
    """Fetch what was acknowledged, while more is being stored."""
    chance = Random(seed)
    with Client(url) as client:
        while True:
            known = sorted(ledger.acknowledged)
            if not known:
                ledger.enough.wait(0.005)
                continue
            try:
                if fetched_blocks(client, ledger, chance.choice(known)) != BLOCKS_A_STORE:
                    ledger.wrong.append("an acknowledged block was missed")
            except KvshelfError:
                return


def fetched_blocks(client: Client, ledger: Ledger, number: int) -> int:
    """Plan and fetch a prompt; returns how many of its blocks came. Every byte of them must be right."""
    keys = keys_of(ledger, number)
    plan = client.plan("kill", tokens=prompt_of(number))
    frames = list(client.fetch(plan.lease.lease_id)) if plan.lease.records else []
    for frame, key in zip(frames, keys, strict=False):
        is_right = frame.header.miss is None and frame.header.key == key and frame.payload == payload_of(key)
        if not is_right:
            ledger.wrong.append(f"prompt {number}: a wrong frame {frame.header}")
    client.release(plan.lease.lease_id)
    assert plan.hit_tokens == len(frames) * BLOCK
    return len(frames)


def kill_while_storing(served: Served, ledger: Ledger, round_number: int) -> None:
    """Let clients store and fetch, and kill the service under them."""
    ledger.enough.clear()
    chance = Random(round_number)
    first = round_number * 1_000_000
    threads = [
        threading.Thread(
            target=write_until_it_dies,
            args=(served.url, ledger, range(first + writer * 100_000, first + (writer + 1) * 100_000)),
        )
        for writer in range(WRITERS)
    ]
    threads.append(threading.Thread(target=read_until_it_dies, args=(served.url, ledger, round_number)))
    for thread in threads:
        thread.start()
    assert ledger.enough.wait(30), "nothing was stored"
    threading.Event().wait(chance.random() * 0.1)
    served.kill()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_ten_kills_lose_nothing_that_was_acknowledged(serve: Serve) -> None:
    served = serve()
    with Client(served.url) as client:
        namespace = client.register_namespace("kill", SPEC)
    earlier: dict[int, int] = {}
    for round_number in range(KILLS):
        ledger = Ledger(namespace)
        kill_while_storing(served, ledger, round_number)
        served.start()
        with Client(served.url) as client:
            found = {number: fetched_blocks(client, ledger, number) for number in ledger.sent}
        assert {number for number, blocks in found.items() if blocks == BLOCKS_A_STORE} >= ledger.acknowledged
        assert not ledger.wrong
        earlier |= found
        usage = served.http.get("/v1/stats").json()["tiers"]["ssd"]
        records = sum(earlier.values())
        assert (usage["records"], usage["live_bytes"]) == (records, records * BYTES_PER_TOKEN * BLOCK)
        assert usage["owners"] == {"kill": usage["live_bytes"]}

    served.kill()
    check_offline(served, sum(earlier.values()))
    served.start()
    ledger = Ledger(namespace)
    with Client(served.url) as client:
        assert {number: fetched_blocks(client, ledger, number) for number in earlier} == earlier
    assert not ledger.wrong
    assert served.stop() == 0


def check_offline(served: Served, records: int) -> None:
    """Open the directory as the kill left it: nothing needs mending, and index, accounts and files agree."""
    tier = SsdTier(served.data_dir, clock=SystemClock(), ttl_seconds=72 * 3600, budget_bytes=SMALL_BUDGET_BYTES)
    tier.check_integrity()
    assert tier.usage().records == records
    tier.close()
