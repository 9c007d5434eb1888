"""A hundred agent sessions at once against small shelves: no error, no wrong byte, flat memory.

The service has a Redis that evicts and an SSD tier that recycles; every byte that is fetched is compared. Memory is the
service's own (anonymous pages: without the index and the segments, which the kernel keeps for it).
"""

import tempfile
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

from kvshelf_client.client import Client
from kvshelf_client.errors import KvshelfError
from service.profiles import get_profile
from service.profiles.geometry import Part
from service.replay.errors import ReplayError
from service.replay.replayer import Replayer, ReplayOptions
from service.replay.samples import Sampler
from service.replay.tally import LATENCIES, Tally
from service.replay.target import Target
from service.traces.base import Trace
from service.traces.generate import GeneratorSettings, trace_bytes, write_trace
from service.traces.reader import read_trace
from storage.clock import SystemClock
from tests.load.bench.measure import resident_bytes
from tests.load.soak.base import Progress, Summary, Trial
from tests.support.redis_server import RedisServer
from tests.support.served import Served

SESSIONS = 100
SSD_BYTES, POOL_BYTES = 1 << 30, 256 << 20
MEMORY_BYTES = 64 << 20
"""So little that it is used up in the first seconds, and what grows later shows."""
MAX_GROWTH_BYTES = 64 << 20
"""Of the service from the second fifth of the trial to the last."""
WARM_UP_SECONDS = 12.0
"""Nothing is compared with what was before: until then a hundred sessions begin."""
_BYTES_PER_TOKEN, _BYTES_PER_WINDOW_TOKEN = 128, 64
_CALL_SECONDS = 60.0


def profile() -> dict[str, object]:
    """DeepSeek-V4.1-Flash in small: blocks of 8 KiB, snapshots large enough that the pool is used up."""
    small = get_profile("deepseek-v4.1-flash/fp4").miniature(_BYTES_PER_TOKEN)
    rows = tuple(replace(each, row=(Part("u8", (_BYTES_PER_WINDOW_TOKEN,), "filler"),)) for each in small.window_rows)
    return replace(small, window_rows=rows).document()


def trace_of(directory: Path, seed: int) -> Trace:
    """Generated sessions, more than are under way at once; they begin anew when they are over."""
    path = directory / "sessions.jsonl"
    write_trace(path, trace_bytes(seed, GeneratorSettings(sessions=4 * SESSIONS, turns=(3, 12))))
    return read_trace(path)


class _Memory:
    """The service's memory, in the order it was looked at."""

    def __init__(self, process: int) -> None:
        self._process = process
        self.seen_bytes: list[int] = []

    def look(self) -> None:
        self.seen_bytes.append(resident_bytes(self._process, "RssAnon"))

    @property
    def fifths_bytes(self) -> list[float]:
        """The median of each fifth of the trial."""
        fifth = max(1, len(self.seen_bytes) // 5)
        return [median(self.seen_bytes[start * fifth :][:fifth] or [0]) for start in range(5)]

    def growth_bytes(self, seconds: float) -> int:
        """From the second fifth of so many seconds, when all is under way, to the last."""
        fifth = max(1, len(self.seen_bytes) // 5)
        start = max(fifth, round(len(self.seen_bytes) * min(1.0, WARM_UP_SECONDS / seconds)))
        return round(self.fifths_bytes[-1] - median(self.seen_bytes[start:][:fifth] or self.seen_bytes[-fifth:]))


def run(count: int, seed: int, progress: Progress) -> Summary:
    """Replay for ``count`` seconds."""
    with tempfile.TemporaryDirectory(prefix="kvshelf-load-") as name, ExitStack() as closing:
        directory = Path(name)
        redis = RedisServer(maxmemory_bytes=POOL_BYTES, policy="volatile-ttl")
        closing.callback(redis.close)
        served = Served(
            directory,
            "--redis-url",
            redis.url,
            KVSHELF_STORE__BUDGET_BYTES=str(SSD_BYTES),
            KVSHELF_STORE__MEMORY_BYTES=str(MEMORY_BYTES),
            # A machine with more to do than it can does not pass for a Redis that is away.
            KVSHELF_POOL__TIMEOUT_SECONDS="10",
            KVSHELF_POOL__REQUEST_SECONDS="60",
        )
        closing.callback(served.close)
        served.start()
        return _replay(served, trace_of(directory, seed), count, progress)


def _replay(served: Served, trace: Trace, count: int, progress: Progress) -> Summary:
    clock, summary = SystemClock(), Summary()
    options = ReplayOptions(concurrency=SESSIONS, duration_seconds=count)
    memory = _Memory(served.server.process.pid)
    with (
        Client(
            served.url, strict=True, budget_seconds=_CALL_SECONDS, max_connections=options.requests_at_once
        ) as client,
        Client(served.url) as aside,
    ):
        target = Target(profile(), None, "")
        namespace = target.register(client, "load", trace)
        replayer = Replayer(client, namespace, trace, options, clock=clock, sleep=threading.Event().wait)
        started = looked = clock.monotonic()

        def on_progress(request: object) -> None:
            nonlocal looked
            if clock.monotonic() - looked >= 0.2:
                looked = clock.monotonic()
                memory.look()
                progress(round(looked - started), f"{replayer.tally.requests} requests")

        with Sampler(aside, clock) as sampler:
            try:
                replayer.run(on_progress)
            except (ReplayError, KvshelfError) as error:
                summary.failures.append(f"the replay ended: {error!r}")
    _count(replayer.tally, summary)
    if replayer.tally.outcomes["lost"]:
        summary.failures.append(f"{replayer.tally.outcomes['lost']} stores were lost")
    for sample in sampler.samples:
        for name, use in sample.tiers.items():
            key = f"most in {name}, MB"
            summary.figures[key] = max(summary.figures.get(key, 0.0), (use.used_bytes or use.live_bytes) / 1e6)
    for number, size_bytes in enumerate(memory.fifths_bytes, 1):
        summary.figures[f"memory in fifth {number}, MB"] = size_bytes / 1e6
    summary.figures["memory at the most, MB"] = max(memory.seen_bytes, default=0) / 1e6
    growth_bytes = memory.growth_bytes(count)
    summary.figures["memory grown, MB"] = growth_bytes / 1e6
    if growth_bytes > MAX_GROWTH_BYTES:
        summary.failures.append(f"memory grew by {growth_bytes} bytes")
    summary.failures += [f"the service logged {line}" for line in served.log() if line["level"] == "error"]
    return summary


def _count(tally: Tally, summary: Summary) -> None:
    summary.tried.update(
        {
            "requests": tally.requests,
            "records verified": tally.fetched_records,
            "bytes verified": tally.fetched_bytes,
            "bytes stored": tally.stored_bytes,
            "planned again after a miss": tally.replans,
            "fallbacks": tally.fallbacks,
            **{f"resumed: {mode}": number for mode, number in tally.resumes.items()},
            **{f"stores: {outcome}": number for outcome, number in tally.outcomes.items()},
            **{f"missed while fetching: {reason}": number for reason, number in tally.misses.items()},
        }
    )
    summary.figures["requests a second"] = tally.requests / max(tally.elapsed_seconds, 1e-9)
    for name in LATENCIES:
        for percent, seconds in tally.latency_seconds(name).items():
            summary.figures[f"{name}: {percent} seconds"] = seconds


TRIAL = Trial(
    name="load",
    about="a hundred sessions at once on small shelves: no error, no wrong byte, flat memory",
    unit="seconds",
    full=600,
    run=run,
)
