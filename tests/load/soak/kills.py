"""Kill -9 while clients store: what was acknowledged is there again, every byte is right, the accounts add up.

A kill comes at any moment: while much is being stored and fetched, or while the service still opens its directory.
"""

import contextlib
import hashlib
import signal
import struct
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx

from kvshelf_client import Client, NamespaceSpec, StoreRecord
from kvshelf_client.answers import Namespace
from kvshelf_client.errors import KvshelfError
from kvshelf_client.hashing import block_keys
from kvshelf_client.words import Provenance, RecordClass
from service.cli.errors import CommandError
from storage.clock import SystemClock
from storage.ssd import SsdTier
from tests.load.soak.base import Progress, Summary, Trial, so_far
from tests.support.client import fetched, registered
from tests.support.engine import BLOCK, PROFILE
from tests.support.served import Served

WRITERS = 4
BLOCKS_A_STORE = 40
LEAST_STORES_A_ROUND = 12
BUDGET_BYTES = 8 << 30
"""Ample: nothing is evicted."""
AGAIN = 20
"""Prompts of earlier rounds that are looked at after each kill; after the last one all are."""
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
    with Client(url, strict=True, budget_seconds=30) as client:
        for number in numbers:
            records = [
                StoreRecord(RecordClass.BLOCK, key, (at + 1) * BLOCK, payload_of(key), Provenance.EXACT)
                for at, key in enumerate(keys_of(ledger, number))
            ]
            ledger.sent.add(number)
            try:
                result = client.store(ledger.namespace, records)
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
    with Client(url, strict=True, budget_seconds=30) as client:
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
    plan = client.plan(ledger.namespace, tokens=prompt_of(number))
    loaded, payloads = fetched(client, plan)
    for slot, payload in payloads.items():
        if payload != payload_of(keys[slot.end_tokens // BLOCK - 1]):
            ledger.wrong.append(f"prompt {number}: wrong bytes in {slot}")
    client.release(plan, loaded.resume)
    assert plan.hit_tokens == len(payloads) * BLOCK
    return len(payloads)


def kill_while_storing(served: Served, ledger: Ledger, chance: Random, first: int) -> None:
    """Let clients store and fetch, and kill the service under them."""
    threads = [
        threading.Thread(
            target=write_until_it_dies,
            args=(served.url, ledger, range(first + writer * 100_000, first + (writer + 1) * 100_000)),
        )
        for writer in range(WRITERS)
    ]
    threads.append(threading.Thread(target=read_until_it_dies, args=(served.url, ledger, first)))
    for thread in threads:
        thread.start()
    assert ledger.enough.wait(60), "nothing was stored"
    threading.Event().wait(chance.random() * 0.3)
    served.kill()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a client hangs"


def kill_while_opening(served: Served, chance: Random) -> None:
    """Start the service and kill it before it says anything, or just after."""

    def kill() -> None:
        with contextlib.suppress(ValueError):  # On a busy machine there may be no process yet.
            served.signal(signal.SIGKILL)

    timer = threading.Timer(0.05 + chance.random(), kill)
    timer.start()
    with contextlib.suppress(CommandError, httpx.HTTPError):  # It was killed before it served.
        served.start()
    timer.join()


class Kills:
    """One directory, served and killed again and again, and all that was acknowledged there."""

    def __init__(self, served: Served, seed: int) -> None:
        self.served = served
        self.chance = Random(seed)
        self.summary = Summary()
        self.found: dict[int, int] = {}
        """How many blocks there are of each prompt that was ever sent; those that were acknowledged have all."""
        served.start()
        with Client(served.url, strict=True, budget_seconds=30) as client:
            self.namespace = registered(client, "kill", SPEC)

    def round(self, number: int) -> None:
        """Kill once, and look at what is there."""
        ledger = Ledger(self.namespace)
        kill_while_storing(self.served, ledger, self.chance, number * 1_000_000)
        self.summary.tried["kills while storing"] += 1
        if self.chance.random() < 0.25:
            kill_while_opening(self.served, self.chance)
            self.served.kill()
            self.summary.tried["kills while opening"] += 1
        ready_seconds = self.served.start()
        self.summary.figures["longest start, seconds"] = max(
            ready_seconds, self.summary.figures.get("longest start, seconds", 0.0)
        )
        with Client(self.served.url, strict=True, budget_seconds=30) as client:
            found = {prompt: fetched_blocks(client, ledger, prompt) for prompt in ledger.sent}
            again = self.chance.sample(sorted(self.found), min(AGAIN, len(self.found)))
            self._check_earlier({prompt: fetched_blocks(client, ledger, prompt) for prompt in again})
        self._check(found, ledger)
        self.found |= found
        self._check_usage()
        self.summary.tried["stores sent"] += len(ledger.sent)
        self.summary.tried["stores acknowledged"] += len(ledger.acknowledged)

    def finish(self) -> None:
        """Kill a last time, open the directory offline, and look at everything that was ever sent."""
        self.served.kill()
        tier = SsdTier(self.served.data_dir, clock=SystemClock(), ttl_seconds=72 * 3600, budget_bytes=BUDGET_BYTES)
        tier.check_integrity()
        records = tier.usage().records
        tier.close()
        if records != sum(self.found.values()):
            self.summary.failures.append(f"offline there are {records} records, not {sum(self.found.values())}")
        self.served.start()
        ledger = Ledger(self.namespace)
        with Client(self.served.url, strict=True, budget_seconds=30) as client:
            self._check_earlier({prompt: fetched_blocks(client, ledger, prompt) for prompt in self.found})
        self.summary.failures += ledger.wrong
        self.summary.tried["blocks looked at in the end"] += sum(self.found.values())
        if self.served.stop() != 0:
            self.summary.failures.append("it did not stop well")

    def _check(self, found: dict[int, int], ledger: Ledger) -> None:
        lost = [prompt for prompt in ledger.acknowledged if found[prompt] != BLOCKS_A_STORE]
        self.summary.failures += [
            f"prompt {prompt} was acknowledged: {found[prompt]} blocks are left" for prompt in lost
        ]
        self.summary.failures += ledger.wrong

    def _check_earlier(self, now: dict[int, int]) -> None:
        lost = [prompt for prompt, blocks in now.items() if blocks != self.found[prompt]]
        self.summary.failures += [
            f"prompt {prompt} had {self.found[prompt]} blocks, has {now[prompt]}" for prompt in lost
        ]

    def _check_usage(self) -> None:
        usage = self.served.http.get("/v1/stats").json()["tiers"]["ssd"]
        records = sum(self.found.values())
        expected = (records, records * BYTES_PER_TOKEN * BLOCK)
        if (usage["records"], usage["live_bytes"]) != expected or usage["owners"] != {"kill": expected[1]}:
            self.summary.failures.append(f"the accounts say {usage}, there are {expected}")


def run(count: int, seed: int, progress: Progress) -> Summary:
    """Kill a service ``count`` times while clients store and fetch."""
    with tempfile.TemporaryDirectory(prefix="kvshelf-kills-") as directory:
        served = Served(Path(directory), KVSHELF_STORE__BUDGET_BYTES=str(BUDGET_BYTES))
        try:
            kills = Kills(served, seed)
            for number in range(count):
                words = f"{kills.summary.tried['stores acknowledged']} stores acknowledged"
                progress(number, f"{words}; {so_far(kills.summary.failures)}")
                kills.round(number)
            kills.finish()
        finally:
            served.close()
        return kills.summary


TRIAL = Trial(
    name="kills",
    about="a service that is killed at any moment has all that it acknowledged, and no byte is wrong",
    unit="kills",
    full=100,
    run=run,
)
