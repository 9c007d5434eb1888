"""Replay a trace: start each request when it is its turn, in threads, and add up what they have seen.

In the **open loop** (with a speed) the trace's times say when a request starts, however slow the service is. In the
**closed loop** so many sessions are under way at once, each as fast as it goes. One at a time, either goes through the
trace in its order.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NamedTuple

from kvshelf_client.answers import Namespace
from kvshelf_client.client import Client
from service.replay.engine import Engine, EngineRequest
from service.replay.schedule import Schedule, Step
from service.replay.tally import Tally
from service.traces.base import Trace, TraceRequest
from storage.clock import Clock

_THREADS_A_SESSION = 8
"""Sub-agents of one session that may be under way at once."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How to replay.

    Args:
        speed: 0 for the closed loop; else the open one, with the trace's times divided by this.
        concurrency: how many sessions are under way at once, with their sub-agents; in the open loop how many requests
            at most. With 1 there is one request at a time, in the order of the trace.
        duration_seconds: start nothing after so long; a trace that is over before begins anew, as other sessions.
        warmup_seconds: requests that are to start before are left out of the tally.
        durable: whether stores wait for the disk.
        run_id: goes in front of every request id, so that each replay's requests are counted.
    """

    speed: float = 0.0
    concurrency: int = 1
    duration_seconds: float | None = None
    warmup_seconds: float = 0.0
    durable: bool = True
    run_id: str = "replay"

    @property
    def requests_at_once(self) -> int:
        """The most requests under way at a time."""
        is_closed = not self.speed and self.concurrency > 1
        return self.concurrency * _THREADS_A_SESSION if is_closed else self.concurrency


class _Ended(NamedTuple):
    """A request that is over, well or not."""

    step: Step
    made: EngineRequest
    future: Future[None]


class Replayer:
    """Replays one trace. ``tally`` and ``timeline`` may be read after an interrupt, too.

    Args:
        client: see :class:`Engine`.
        namespace: as registered there for this trace.
        trace: the requests.
        options: how to replay.
        clock: measures latencies and, with a speed, says when a request is due.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        client: Client,
        namespace: Namespace,
        trace: Trace,
        options: ReplayOptions,
        *,
        clock: Clock,
        sleep: Callable[[float], object],
    ) -> None:
        self.tally = Tally()
        self.warmup = Tally()
        """The requests that were left out of ``tally``."""
        self.timeline: dict[int, Tally] = {}
        """What ended in which second from the start, warm-up included; latencies, too."""
        self._options, self._clock, self._sleep = options, clock, sleep
        self._engine = Engine(client, namespace, durable=options.durable, clock=clock)
        self._schedule = Schedule(
            trace,
            sessions_at_once=None if options.speed or options.concurrency == 1 else options.concurrency,
            is_endless=options.duration_seconds is not None,
        )
        self._ended: SimpleQueue[_Ended] = SimpleQueue()
        self._under_way = 0
        self._started = 0.0

    @property
    def under_way(self) -> int:
        """Requests that have started and not ended."""
        return self._under_way

    def run(self, on_progress: Callable[[TraceRequest], None] | None = None) -> Tally:
        """Replay; ``on_progress`` is called after each request. The first error ends it, and others are not told.

        Raises:
            ReplayError: the service broke its contract, with a wrong byte or otherwise.
            KvshelfError: the service answered with an error, or not at all.
        """
        self._started = self._clock.monotonic()
        try:
            with ThreadPoolExecutor(self._options.requests_at_once, "replay") as threads:
                self._run(threads, on_progress or _silent)
        finally:
            while not self._ended.empty():
                self._count(self._ended.get())
        return self.tally

    def _run(self, threads: ThreadPoolExecutor, on_progress: Callable[[TraceRequest], None]) -> None:
        while True:
            wait = self._start_all(threads)
            if not self._under_way:
                if wait is None:
                    return
                self._sleep(wait)
                continue
            try:
                ended = self._ended.get(timeout=wait)
            except Empty:
                continue
            self._count(ended)
            ended.future.result()
            on_progress(ended.step.request)

    def _start_all(self, threads: ThreadPoolExecutor) -> float | None:
        """Start what may start; returns the seconds to the next, None where one of those under way has to end first."""
        while self._under_way < self._options.requests_at_once and (step := self._schedule.peek()) is not None:
            now = self._clock.monotonic()
            intended = self._started + step.request.time_seconds / self._options.speed if self._options.speed else now
            end = self._started + (self._options.duration_seconds or float("inf"))
            if now >= end:
                return None
            if intended > now:
                return min(intended, end) - now
            self._schedule.take()
            self._start(threads, step, intended)
        return None

    def _start(self, threads: ThreadPoolExecutor, step: Step, intended: float) -> None:
        made = EngineRequest(self._engine, step.request, f"{self._options.run_id}-{step.number}", intended)
        self._under_way += 1
        future = threads.submit(made.run)
        future.add_done_callback(lambda future: self._ended.put(_Ended(step, made, future)))

    def _count(self, ended: _Ended) -> None:
        self._under_way -= 1
        if self._schedule.finish(ended.step) and ended.step.request.session is not None:
            self._engine.forget(ended.step.request.session)
        elapsed = self._clock.monotonic() - self._started
        is_warmup = ended.made.intended < self._started + self._options.warmup_seconds
        (self.warmup if is_warmup else self.tally).add(ended.made.tally)
        self.timeline.setdefault(int(elapsed), Tally()).add(ended.made.tally)
        self.tally.elapsed_seconds = max(0.0, elapsed - self._options.warmup_seconds)


def _silent(request: TraceRequest) -> None:
    """The progress of nobody."""
