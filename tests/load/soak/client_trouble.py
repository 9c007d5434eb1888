"""Trouble between a client and its service: it answers in time, is never wrong, and works again by itself.

Several lanes at a time, each a proxy in front of one real service with a client behind it, go through one trouble after
the other; every other lane's client is for asyncio. Then the service itself is killed, frozen and restarted.
"""

import asyncio
import gc
import hashlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

from kvshelf_client import AsyncClient, Client, Loaded, NamespaceSpec, Plan, RecordClass, Slot, StoreRecord
from kvshelf_client.answers import Namespace
from kvshelf_client.plans import keys_of
from kvshelf_client.requests import AskPlan
from kvshelf_client.words import Provenance
from tests.load.soak.base import Progress, Summary, Trial
from tests.support.client import registered
from tests.support.engine import BLOCK, PROFILE
from tests.support.proxy import Proxy
from tests.support.served import Served

LANES = 12
BUDGET_SECONDS = 0.12
LATE_SECONDS, BACK_SECONDS = 0.05, 2.0
ATTEMPTS = 3
"""A call that is late once may have waited for a processor; one that is late each time has not."""
BLOCKS = 40
SPEC = NamespaceSpec(tenant="trouble", model="m", weights_revision="1", profile=PROFILE, bytes_per_token=37)
TOKENS = bytes(4 * (BLOCKS * BLOCK + 100))
GROWTH_BYTES = 32 << 20
WHOLE_SERVICE_SHARE = 25
"""One in so many troubles befalls the service itself, which takes longer."""


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
        started, pause = time.monotonic(), threading.Event()
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
        late = [0.0]

        def timed(verb: str, *arguments: Any, **keywords: Any) -> Any:
            started = time.monotonic()
            answer = getattr(self.client, verb)(*arguments, **keywords)
            late.append(time.monotonic() - started - BUDGET_SECONDS)
            return answer

        plan = timed("plan", self.namespace, tokens=TOKENS)
        started = time.monotonic()
        loaded = self.fetch(plan)
        late.append(time.monotonic() - started - BUDGET_SECONDS)
        key = self.chance.randbytes(32)
        record = StoreRecord(RecordClass.BLOCK, key, BLOCK, bytes(self.namespace.block_bytes), Provenance.EXACT)
        timed("store", self.namespace, [record], durable=False)
        timed("stats")
        timed("release", plan, loaded.resume)
        return max(late)

    def fetch(self, plan: Plan) -> Loaded:
        """Fetch, and check that all that is called good, and all that is to be run on, is good."""
        for buffer in self._buffers.values():
            buffer[:] = bytes(len(buffer))
        loaded: Loaded = self.client.fetch_into(plan, self._room_for)
        good = {record.slot for record in loaded.records if record.reason is None}
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


def cut(lane: Lane) -> Iterator[None]:
    """In the midst of an answer, again and again."""
    lane.proxy.cut_after_bytes = lane.chance.randrange(1, 200_000)
    yield
    lane.proxy.cut_after_bytes = None


def silent(lane: Lane) -> Iterator[None]:
    """Half open: what is sent goes nowhere."""
    lane.proxy.is_silent = True
    yield
    lane.proxy.is_silent = False
    lane.proxy.cut_all()


def slow(lane: Lane) -> Iterator[None]:
    """A byte a second."""
    lane.proxy.delay_seconds, lane.proxy.trickle_bytes = 1.0, 1
    yield
    lane.proxy.delay_seconds, lane.proxy.trickle_bytes = 0.0, 0


def slowish(lane: Lane) -> Iterator[None]:
    """So slow that a fetch does not end in time."""
    lane.proxy.delay_seconds, lane.proxy.trickle_bytes = 0.01, lane.chance.randrange(1000, 10_000)
    yield
    lane.proxy.delay_seconds, lane.proxy.trickle_bytes = 0.0, 0


def refused(lane: Lane) -> Iterator[None]:
    """Nobody listens."""
    lane.proxy.stop_listening()
    yield
    lane.proxy.listen_again()


def reset(lane: Lane) -> Iterator[None]:
    """Connections end as they begin."""
    lane.proxy.is_resetting = True
    lane.proxy.cut_all()
    yield
    lane.proxy.is_resetting = False


@contextmanager
def _spoiling(lane: Lane, spoil: Callable[[bytes], bytes]) -> Iterator[None]:
    whole, lane.proxy.spoil = lane.proxy.spoil, spoil
    yield
    lane.proxy.spoil = whole


def garbage(lane: Lane) -> Iterator[None]:
    """Answers are noise."""
    with _spoiling(lane, lambda piece: lane.chance.randbytes(len(piece))):
        yield


def another_version(lane: Lane) -> Iterator[None]:
    """Frames are of another version of the wire format."""
    with _spoiling(lane, lambda piece: piece.replace(b"KVSF\x01", b"KVSF\x02")):
        yield


def flipped(lane: Lane) -> Iterator[None]:
    """One bit of each piece of an answer is another."""

    def flip(piece: bytes) -> bytes:
        spoiled = bytearray(piece)
        spoiled[lane.chance.randrange(len(piece))] ^= 1 << lane.chance.randrange(8)
        return bytes(spoiled)

    with _spoiling(lane, flip):
        yield


TROUBLES: tuple[Callable[[Lane], Iterator[None]], ...] = (
    cut, silent, slow, slowish, refused, reset, garbage, another_version, flipped,
)  # fmt: skip


class Trouble:
    """One service, and the lanes to it."""

    def __init__(self, served: Served, seed_number: int, closing: ExitStack) -> None:
        self._served = served
        self._chance = Random(seed_number)
        served.start()
        with Client(served.url, strict=True, budget_seconds=30) as client:
            namespace = registered(client, "trouble", SPEC)
            seed(namespace, client)
        self.lanes: list[Lane] = []
        for number in range(LANES):
            proxy = closing.enter_context(Proxy(served.port))
            url = f"http://127.0.0.1:{proxy.port}"
            client_of: Any = Waiting(AsyncClient(url, budget_seconds=BUDGET_SECONDS)) if number % 2 else None
            client_of = client_of or Client(url, budget_seconds=BUDGET_SECONDS)
            closing.callback(client_of.close)
            self.lanes.append(Lane(proxy, client_of, namespace, seed_number * 100 + number))

    def between(self, count: int, progress: Progress) -> None:
        """Go through so many troubles between client and service, all lanes at the same time."""
        done = iter(range(count))

        def work(lane: Lane) -> None:
            for number in done:
                lane.go_through(lane.chance.choice(TROUBLES))
                if number % 100 == 0:
                    progress(number, f"{sum(len(each.summary.failures) for each in self.lanes)} failures")

        with ThreadPoolExecutor(LANES) as threads:
            list(threads.map(work, self.lanes))

    def of_the_service(self, count: int, progress: Progress) -> None:
        """Go through so many troubles of the service itself, on one lane after the other."""
        for number in range(count):
            lane = self.lanes[number % LANES]
            lane.go_through(self._chance.choice([self.frozen, self.killed]))
            for each in self.lanes:
                each.wait_until_back()
            progress(number, "of the service itself")

    def frozen(self, lane: Lane) -> Iterator[None]:
        """It stops, with all its connections, and goes on."""
        self._served.signal(signal.SIGSTOP)
        yield
        self._served.signal(signal.SIGCONT)

    def killed(self, lane: Lane) -> Iterator[None]:
        """In the midst of a fetch; it is started again on another port, which the proxies know."""
        lane.proxy.delay_seconds, lane.proxy.trickle_bytes = 0.001, 4096
        timer = threading.Timer(lane.chance.random() * BUDGET_SECONDS / 2, lambda: self._served.signal(signal.SIGKILL))
        timer.start()
        yield
        timer.join()
        lane.proxy.delay_seconds, lane.proxy.trickle_bytes = 0.0, 0
        self._served.start()
        for each in self.lanes:
            each.proxy.aim(self._served.port)

    def summary(self) -> Summary:
        """What came of all lanes."""
        whole = Summary()
        for lane in self.lanes:
            whole.tried.update(lane.summary.tried)
            whole.failures += lane.summary.failures
        whole.figures["latest answer, seconds over its budget"] = max(lane.worst_late_seconds for lane in self.lanes)
        whole.figures["longest until back, seconds"] = max(lane.longest_back_seconds for lane in self.lanes)
        return whole


def _held() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(count: int, seed_number: int, progress: Progress) -> Summary:
    """Go through ``count`` troubles; one in 25 befalls the service itself."""
    before = _held()
    with tempfile.TemporaryDirectory(prefix="kvshelf-trouble-") as directory:
        served = Served(Path(directory))
        try:
            with ExitStack() as closing:
                trouble = Trouble(served, seed_number, closing)
                whole = count // WHOLE_SERVICE_SHARE
                trouble.between(count // 10, progress)
                resident = _resident_bytes()
                trouble.between(count - count // 10 - whole, progress)
                trouble.of_the_service(whole, progress)
                grown = _resident_bytes() - resident
                summary = trouble.summary()
        finally:
            served.close()
    if _held() != before:
        summary.failures.append(f"descriptors and threads: {before} before, {_held()} after")
    if grown > GROWTH_BYTES:
        summary.failures.append(f"memory grew by {grown} bytes")
    summary.figures["memory grown, MB"] = grown / 1e6
    return summary


TRIAL = Trial(
    name="client_trouble",
    about="a client answers within its budget whatever happens, is never wrong, and works again by itself",
    unit="troubles",
    full=10_000,
    run=run,
)
