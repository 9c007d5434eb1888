"""Many clients: what they get together, and what memory the server takes for them."""

import functools
import random

from kvshelf_client import Client, StoreRecord
from kvshelf_client.answers import Namespace
from kvshelf_client.hashing import block_keys
from kvshelf_client.words import Provenance, RecordClass
from tests.load.bench.base import Case, Figures
from tests.load.bench.crowd import crowd_of
from tests.load.bench.measure import resident_bytes
from tests.load.bench.sizes import BLOCK_BYTES, BLOCK_TOKENS, MIB
from tests.load.bench.stage import Stage
from tests.support.client import discarding, loaded_bytes

_STORED_AT_ONCE = 64


class ManyClients(Case):
    """Each client plans, fetches and releases a prompt of its own, warm; all of them, and one alone in turn."""

    name = "many_clients"
    ratios = {"clients32_vs_1": ("clients32_gb_s", "clients1_gb_s")}

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        service, blocks = stage.service(), max(1, stage.sizes.blocks // 4)
        prompts = [stage.prompt(blocks) for _ in range(stage.sizes.clients)]
        for tokens in prompts:
            service.client.store(service.namespace, stage.records(service, tokens), durable=False)
        work = functools.partial(fetch_prompt, service.namespace, prompts)
        self._one = stage.closing.enter_context(crowd_of(service.url, 1, work))
        self._all = stage.closing.enter_context(crowd_of(service.url, stage.sizes.clients, work))

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        seconds = self.stage.sizes.seconds * 2
        return {"clients1_gb_s": self._one.work(seconds), "clients32_gb_s": self._all.work(seconds)}


class ServerMemory(Case):
    """Half of the clients fetch a prompt of a million tokens, half store one each, on a service of their own.

    ``server_memory_over_pools_mb`` is the most memory it ever had, less what it is configured to keep payloads in.
    """

    name = "server_memory"
    costs = ("server_memory_over_pools_mb",)

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._service = stage.service("crowded", memory_bytes=256 * MIB)
        blocks = stage.sizes.prompt_tokens // BLOCK_TOKENS
        tokens = stage.prompt(blocks)
        records = stage.records(self._service, tokens)
        for start in range(0, blocks, 1024):
            self._service.client.store(self._service.namespace, records[start : start + 1024], durable=False)
        work = functools.partial(fetch_or_store, self._service.namespace, tokens, blocks)
        self._crowd = stage.closing.enter_context(crowd_of(self._service.url, stage.sizes.clients, work))

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        rate = self._crowd.work(self.stage.sizes.crowd_seconds / 2)
        pools = self._service.memory_bytes
        most = resident_bytes(self._service.pid, "VmHWM") - pools
        return {"server_memory_over_pools_mb": most / MIB, "crowd_gb_s": rate}


def fetch_prompt(namespace: Namespace, prompts: list[bytes], client: Client, number: int) -> int:
    """Plan, fetch, release."""
    plan = client.plan(namespace, tokens=prompts[number] + bytes(2 * BLOCK_TOKENS * 4))
    moved = loaded_bytes(client.fetch_into(plan, discarding(namespace)), namespace)
    client.release(plan, plan.resume)
    return moved


def fetch_or_store(namespace: Namespace, tokens: bytes, blocks: int, client: Client, number: int) -> int:
    """Even clients fetch the prompt that is there, odd ones store a new one."""
    if number % 2 == 0:
        return fetch_prompt(namespace, [tokens] * (number + 1), client, number)
    chance = random.Random()
    payload = chance.randbytes(BLOCK_BYTES)
    keys = block_keys(namespace.fingerprint, chance.randbytes(blocks * BLOCK_TOKENS * 4), BLOCK_TOKENS)
    client.store(
        namespace,
        [
            StoreRecord(RecordClass.BLOCK, key, (index + 1) * BLOCK_TOKENS, payload, Provenance.EXACT)
            for index, key in enumerate(keys)
        ],
        durable=False,
    )
    return blocks * BLOCK_BYTES
