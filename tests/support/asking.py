"""Engines that ask a running service for one prompt again and again, and note how long each request took."""

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx

from kvshelf_client.frames import FrameKind
from storage.clock import SystemClock
from tests.support.engine import BLOCK, fetch, frame, keys_of, plan, register, release, snapshot, store
from tests.support.engine import tokens as prompt_of
from tests.support.served import Served

PROMPT = prompt_of(1000)
BOUNDARY = 768
"""The deepest boundary at which a snapshot of the prompt is of use."""
KINDS = (("ns", "deepseek-v4.1-flash/fp4"), ("full", "llama-3-8b/bf16"), ("window", "gpt-oss-20b/bf16"))
"""Namespaces of three kinds of models."""

_Answer = TypeVar("_Answer")


def fill(http: httpx.Client) -> None:
    """Store the prompt of three kinds of models, and their snapshots."""
    for name, profile in KINDS:
        sizes = register(http, name, profile=profile)
        keys = keys_of(http, PROMPT, name)
        frames = [frame(key, (number + 1) * BLOCK) for number, key in enumerate(keys)]
        if sizes["snapshot_bytes"]:
            payload = bytes(sizes["snapshot_bytes"])
            frames.append(frame(keys[BOUNDARY // BLOCK - 1], BOUNDARY, kind=FrameKind.SNAPSHOT, payload=payload))
        assert store(http, b"".join(frames), name)["counts"] == {"stored": len(frames)}


class AskingEngine:
    """An engine whose every request must be answered. ``longest_seconds`` is what one took at most."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=30)
        self.longest_seconds = 0.0
        self.modes: Counter[str] = Counter()

    def close(self) -> None:
        """Close its connections."""
        self.http.close()

    def ask(self, name: str = "ns") -> str:
        """Plan, fetch, release; returns the mode."""
        planned = self._timed(lambda: plan(self.http, PROMPT, name))
        received = self._timed(lambda: fetch(self.http, planned))
        self._timed(lambda: release(self.http, planned))
        assert received or planned["plan"]["mode"] == "cold"
        assert all(header.miss is None for header, _ in received)
        mode = str(planned["plan"]["mode"])
        self.modes[mode] += 1
        return mode

    def store_snapshot(self, boundary: int = BOUNDARY, prompt: bytes = PROMPT) -> str:
        """Store a snapshot of a prompt; the outcome."""
        frames = snapshot(keys_of(self.http, prompt), boundary)
        answer = self._timed(lambda: store(self.http, frames))
        return str(answer["outcomes"][0]["outcome"])

    def breaker(self) -> str:
        """The breaker's state by its metric."""
        text = self.http.get("/metrics").text
        (state,) = re.findall(r'(?m)^kvshelf_breaker_state\{state="(\w+)"\} 1\.0$', text)
        return str(state)

    def health(self) -> dict[str, Any]:
        """What ``/healthz`` says."""
        document: dict[str, Any] = self.http.get("/healthz").json()
        return document

    def _timed(self, request: Callable[[], _Answer]) -> _Answer:
        clock = SystemClock()
        started = clock.monotonic()
        answer = request()
        self.longest_seconds = max(self.longest_seconds, clock.monotonic() - started)
        return answer


@contextmanager
def asking(served: Served, engines: int = 1) -> Iterator[Sequence[AskingEngine]]:
    """More engines that ask all the time, in a thread each; what went wrong there is raised at the end."""
    asked, stop, trouble = [AskingEngine(served.url) for _ in range(engines)], threading.Event(), []

    def ask(engine: AskingEngine) -> None:
        try:
            while not stop.is_set():
                engine.ask()
        except (AssertionError, httpx.HTTPError) as error:
            trouble.append(error)

    threads = [threading.Thread(target=ask, args=(engine,)) for engine in asked]
    for thread in threads:
        thread.start()
    try:
        yield asked
    finally:
        stop.set()
        for thread, engine in zip(threads, asked, strict=True):
            thread.join(30)
            engine.http.close()
    assert not trouble, trouble
