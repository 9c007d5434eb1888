"""Clients that stall, die or outlive the service, as processes: they stop no recycling, and get no wrong bytes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvshelf_client.deadline import Deadline
from kvshelf_client.http.transport import HttpTransport
from kvshelf_client.local.transport import LocalTransport
from kvshelf_client.requests import Fetch
from kvshelf_client.transport import TransportOptions
from kvshelf_client.words import Provenance
from tests.support import engine
from tests.support.local_client import Judge, payload_of
from tests.support.served import Served, eventually

BUDGET_BYTES = 16 << 20
BLOCK_BYTES = 890 * engine.BLOCK
BLOCKS = 24
LEASE_SECONDS = 2.0


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    running = Served(tmp_path, KVSHELF_STORE__BUDGET_BYTES=str(BUDGET_BYTES))
    running.start()
    engine.register(running.http, bytes_per_token=890)
    yield running
    running.close()


def store(served: Served, seed: int, blocks: int = BLOCKS) -> bytes:
    """Store a prompt of so many blocks, whose bytes follow from their keys; returns it with a tail."""
    prompt = engine.tokens(blocks * engine.BLOCK + 200, seed)
    keys = engine.keys_of(served.http, prompt)
    for first in range(0, blocks, 8):
        body = b"".join(
            engine.frame(
                key,
                (number + 1) * engine.BLOCK,
                provenance=Provenance.EXACT,
                payload=payload_of(bytes.fromhex(key), BLOCK_BYTES),
            )
            for number, key in enumerate(keys)
            if first <= number < first + 8
        )
        answer = served.http.post(
            "/v1/namespaces/ns/store?durability=relaxed",
            content=body,
            headers={"content-type": "application/vnd.kvshelf.frames.v1"},
        )
        assert answer.json()["counts"] == {"stored": min(8, blocks - first)}, answer.text
    return prompt


def recycle_everything(served: Served, seed: int) -> None:
    """Store twice the budget, so that every segment that may be written over is."""
    for number in range(2 * BUDGET_BYTES // (BLOCKS * BLOCK_BYTES) + 1):
        store(served, seed + number)


class LocalClient:
    """A process of :mod:`tests.support.local_client` that has opened a lease."""

    def __init__(self, served: Served, prompt: bytes) -> None:
        found = served.http.get("/v1/local").json()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.local_client", found["socket"], found["instance"]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.answer() == {"ready": 1}
        lease = engine.plan(served.http, prompt, lease_ttl_seconds=LEASE_SECONDS)["lease"]
        self.tell(f"open {lease['lease_id']}")
        assert self.answer() == {"opened": BLOCKS}

    def tell(self, word: str) -> None:
        """Tell it what to do."""
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What it has seen."""
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found


@contextmanager
def client_of(served: Served, prompt: bytes) -> Iterator[LocalClient]:
    client = LocalClient(served, prompt)
    try:
        yield client
    finally:
        client.process.kill()
        client.process.wait()
        for pipe in (client.process.stdin, client.process.stdout):
            assert pipe is not None
            pipe.close()


def pinned_bytes(served: Served) -> int:
    found: int = served.http.get("/v1/stats").json()["tiers"]["ssd"]["pinned_bytes"]
    return found


def sockets(served: Served) -> int:
    """How many the service has open."""
    return sum(
        one.is_symlink() and str(one.readlink()).startswith("socket:")
        for one in Path(f"/proc/{served.server.process.pid}/fd").iterdir()
    )


def test_a_client_that_is_stopped_while_everything_is_recycled(served: Served) -> None:
    """Its lease ends without it. What it then reads through its mappings are other records, and it takes none."""
    prompt = store(served, 0)
    with client_of(served, prompt) as client:
        client.tell("load")
        assert client.answer() == {"sound": BLOCKS, "wrong": 0}
        assert pinned_bytes(served)
        client.process.send_signal(signal.SIGSTOP)
        assert eventually(lambda: pinned_bytes(served) == 0, within_seconds=10), "the lease ends all the same"
        recycle_everything(served, 1)
        assert engine.plan(served.http, prompt)["hit_tokens"] == 0, "all of it was recycled"
        client.process.send_signal(signal.SIGCONT)
        client.tell("load")
        seen = client.answer()
        assert seen.pop("unsound", 0) <= BLOCKS, "fewer where pages left the cache when they were written over"
        assert seen == {"missed": BLOCKS}, "it asks the service, and that knows no such lease"


def test_reading_while_the_ground_moves(served: Served) -> None:
    """A client loads in a loop, now stopped, now not, while its lease ends and all segments are written over."""
    prompt = store(served, 0)
    with client_of(served, prompt) as client:
        client.tell("loop")
        for number in range(12):
            client.process.send_signal(signal.SIGSTOP if number % 2 else signal.SIGCONT)
            store(served, 100 + number)
        assert eventually(lambda: pinned_bytes(served) == 0, within_seconds=10)
        recycle_everything(served, 200)
        client.process.send_signal(signal.SIGCONT)
        client.tell("load")
        seen = client.answer()
        assert seen["sound"] >= BLOCKS
        assert seen["wrong"] == 0
        assert seen.get("unsound", 0) + seen["missed"] >= 1
        seen = client.answer()
        assert seen.pop("unsound", 0) <= BLOCKS
        assert seen == {"missed": BLOCKS}


def test_a_client_that_is_killed_leaves_nothing_behind(served: Served) -> None:
    prompt, before = store(served, 0), sockets(served)
    for _ in range(3):
        with client_of(served, prompt):
            pass
    assert eventually(lambda: pinned_bytes(served) == 0, within_seconds=10)
    assert eventually(lambda: "kvshelf_local_clients 0.0" in served.http.get("/metrics").text, within_seconds=5)
    assert eventually(lambda: sockets(served) == before, within_seconds=5)


def test_a_service_that_is_killed_and_started_again_with_a_client_alive(served: Served) -> None:
    prompt = store(served, 0)
    with client_of(served, prompt) as client:
        before = served.http.get("/v1/local").json()
        served.kill()
        served.start()
        after = served.http.get("/v1/local").json()
        assert after["socket"] == before["socket"]
        assert after["instance"] != before["instance"]
        recycle_everything(served, 1)
        client.tell("load")
        client.process.wait(20)
        assert client.process.returncode, "what it was told did not fit, and there is nobody to ask"
    with client_of(served, store(served, 0)) as another:
        another.tell("load")
        assert another.answer() == {"sound": BLOCKS, "wrong": 0}


def test_a_forked_child_makes_connections_of_its_own(served: Served) -> None:
    """Parent and child fetch at the same time, over and over, and neither gets what the other asked for."""
    plans = [engine.plan(served.http, store(served, seed), lease_ttl_seconds=60) for seed in (0, 1)]
    ours, childs = (plan["lease"]["lease_id"] for plan in plans)
    options = TransportOptions()
    transport = LocalTransport(HttpTransport(served.url, options), options)

    def right(lease_id: str) -> bool:
        judge = Judge()
        transport.call(Fetch(lease_id, judge), Deadline(20))
        return judge.seen == {"sound": BLOCKS, "wrong": 0}

    assert right(ours)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = not all(right(childs) for _ in range(20))
        finally:
            os._exit(code)
    assert all(right(ours) for _ in range(20))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert transport.path.is_there
    transport.close()
