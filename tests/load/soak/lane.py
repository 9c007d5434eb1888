"""A client behind a proxy, what it is put through, and whether its answers are in time and right."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from threading import Event
from typing import Any

from kvshelf_client import AsyncClient, Client, Loaded, NamespaceSpec, Plan, RecordClass, Slot, StoreRecord
from kvshelf_client.answers import Namespace
from kvshelf_client.plans import keys_of
from kvshelf_client.requests import AskPlan
from kvshelf_client.words import Provenance
from tests.load.soak.base import Summary
from tests.support.engine import BLOCK, PROFILE
from tests.support.proxy import Proxy

BUDGET_SECONDS = 0.12
LATE_SECONDS, BACK_SECONDS = 0.05, 2.0
ATTEMPTS = 3
"""A call that is late once may have waited for a processor; one that is late each time has not."""
BLOCKS = 40
SPEC = NamespaceSpec(tenant="trouble", model="m", weights_revision="1", profile=PROFILE, bytes_per_token=37)
TOKENS = bytes(4 * (BLOCKS * BLOCK + 100))


def payload_of(slot: Slot, length_bytes: int) -> bytes:
    """The bytes of a record, all over different for every slot."""
    return hashlib.shake_128(repr(slot[:2]).encode()).digest(length_bytes)


def seed(namespace: Namespace, client: Client) -> None:
    """Store the prompt's blocks, and the snapshot at its last one."""
    keys = keys_of(namespace, AskPlan(namespace.name, len(TOKENS) // 4, "seed", TOKENS))
    plan = client.plan(namespace, tokens=TOKENS)
    slots = [Slot(RecordClass.BLOCK, (number + 1) * BLOCK) for number in range(len(keys))]
    # The plan uses one block less than there are: the decoder needs its window.
    slots += [Slot(RecordClass.SNAPSHOT, end) for end in (slots[-2].end_tokens, slots[-1].end_tokens)]
    records = [
        StoreRecord(
            slot.record_class,
            keys[slot.end_tokens // BLOCK - 1],
            slot.end_tokens,
            payload_of(slot, namespace.bytes_of(slot.record_class)),
            Provenance.EXACT,
        )
        for slot in slots
    ]
    assert set(client.store(namespace, records, ran=plan.resume).counts) == {"stored"}
    client.release(plan, plan.resume)


class Waiting:
    """An :class:`AsyncClient` on an event loop of its own, called like a :class:`Client`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._loop = asyncio.new_event_loop()

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        return lambda *arguments, **keywords: self._loop.run_until_complete(
            getattr(self._client, verb)(*arguments, **keywords)
        )

    def close(self) -> None:
        """Close the client and its loop."""
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


class Lane:
    """A client, what it is put through, and what came of it."""

    def __init__(self, proxy: Proxy, client: Any, namespace: Namespace, seed: int) -> None:
        self.proxy, self.client, self.namespace = proxy, client, namespace
        self.chance = Random(seed)
        self.summary = Summary()
        self.worst_late_seconds = self.longest_back_seconds = 0.0
        self._buffers: dict[Slot, bytearray] = {}

    def go_through(self, trouble: Callable[["Lane"], "Iterator[None]"]) -> None:
        """Bring the trouble about, call in the midst of it, end it, and see that the client comes back."""
        name = trouble.__name__
        for _ in range(ATTEMPTS):
            with contextmanager(trouble)(self):
                late = max(self._call_everything() for _ in range(2))
            back = self.wait_until_back()
            self.summary.tried[name] += 1
            if late <= LATE_SECONDS and back <= BACK_SECONDS:
                break
            self.summary.tried["once more, since something was late"] += 1
        else:
            self.fail(f"{name}: {late:.3f} s late, back after {back:.3f} s, {ATTEMPTS} times")
        self.worst_late_seconds = max(self.worst_late_seconds, late)
        self.longest_back_seconds = max(self.longest_back_seconds, back)

    def wait_until_back(self) -> float:
        """Try until all can be loaded again; returns how long that took."""
        started, pause = time.monotonic(), Event()
        while True:
            plan = self.client.plan(self.namespace, tokens=TOKENS)
            loaded = self.fetch(plan)
            self.client.release(plan, loaded.resume)
            if plan.lease is not None and loaded.resume is plan.resume and loaded.records:
                return time.monotonic() - started
            if time.monotonic() - started > 10 * BACK_SECONDS:
                self.fail(f"not back after {10 * BACK_SECONDS} s: {plan.fault}, {loaded.fault}")
                return time.monotonic() - started
            pause.wait(0.02)

    def _call_everything(self) -> float:
        """One request's life; returns by how much the latest call overran its budget."""
        late: list[float] = []

        def timed(call: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
            started = time.monotonic()
            answer = call(*arguments, **keywords)
            late.append(time.monotonic() - started - BUDGET_SECONDS)
            self.summary.tried["calls in the midst of trouble"] += 1
            return answer

        plan = timed(self.client.plan, self.namespace, tokens=TOKENS)
        loaded = timed(self.fetch, plan)
        for answer in (plan, loaded):
            self.summary.tried[
                f"plans and fetches in trouble: {answer.fault.value if answer.fault else 'no fault'}"
            ] += 1
        key = self.chance.randbytes(32)
        record = StoreRecord(RecordClass.BLOCK, key, BLOCK, bytes(self.namespace.block_bytes), Provenance.EXACT)
        timed(self.client.store, self.namespace, [record], durable=False)
        timed(self.client.stats)
        timed(self.client.release, plan, loaded.resume)
        return max(late)

    def fetch(self, plan: Plan) -> Loaded:
        """Fetch, and check that all that is called good, and all that is to be run on, is good."""
        for buffer in self._buffers.values():
            buffer[:] = bytes(len(buffer))
        loaded: Loaded = self.client.fetch_into(plan, self._room_for)
        good = {record.slot for record in loaded.records if record.reason is None}
        self.summary.tried["records called good, and compared"] += len(good)
        for slot in good:
            if self._buffers[slot] != payload_of(slot, self.namespace.bytes_of(slot.record_class)):
                self.fail(f"{slot} was called good, and is wrong")
        if not good.issuperset(plan.slots(loaded.resume)):
            self.fail(f"{loaded.resume} is to be run on what is not there")
        return loaded

    def _room_for(self, slot: Slot) -> bytearray:
        return self._buffers.setdefault(slot, bytearray(self.namespace.bytes_of(slot.record_class)))

    def fail(self, sentence: str) -> None:
        """Note a failure."""
        self.summary.failures.append(sentence)
