"""Trouble between a client and its service: it answers in time, is never wrong, and works again by itself.

Several lanes at a time, each a proxy in front of a real service with a client behind it, go through one trouble after
the other; every other lane's client is for asyncio. Then the services themselves are killed, frozen and restarted.
"""

import gc
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from kvshelf_client import AsyncClient, Client
from tests.load.soak.base import Progress, Summary, Trial, so_far
from tests.load.soak.lane import BUDGET_SECONDS, SPEC, Lane, Waiting, seed
from tests.load.soak.troubles import TROUBLES
from tests.support.client import registered
from tests.support.proxy import Proxy
from tests.support.served import Served

LANES = 12
"""Of each service."""
MANY, SERVICES = 1000, 2
"""Services at a time where there are many troubles; else there is one."""
GROWTH_BYTES = 32 << 20
WHOLE_SERVICE_SHARE = 25
"""One in so many troubles befalls a service itself, which takes longer."""

T = TypeVar("T")


def share(count: int, workers: Sequence[T], work: Callable[[T, int], None]) -> None:
    """Have the workers, each in a thread, do so many pieces of work between them, until one of them fails."""
    numbers, is_over = iter(range(count)), threading.Event()

    def loop(worker: T) -> None:
        for number in numbers:
            if is_over.is_set():
                return
            work(worker, number)

    with ThreadPoolExecutor(len(workers)) as threads:
        try:
            for each in as_completed([threads.submit(loop, worker) for worker in workers]):
                each.result()
        finally:
            is_over.set()


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

    def of_the_service(self, number: int) -> None:
        """Go through a trouble of the service itself, on one of the lanes; then all must come back."""
        self.lanes[number % LANES].go_through(self._chance.choice([self.frozen, self.killed]))
        for each in self.lanes:
            each.wait_until_back()

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


def go_through(troubles: Sequence[Trouble], count: int, progress: Progress) -> Summary:
    """Go through so many troubles, all lanes at the same time, and those of the services themselves in the end."""
    lanes = [lane for each in troubles for lane in each.lanes]
    whole, done = count // WHOLE_SERVICE_SHARE, 0

    def between(lane: Lane, number: int) -> None:
        lane.go_through(lane.chance.choice(TROUBLES))
        if number % 100 == 0:
            progress(done + number, so_far([failure for each in lanes for failure in each.summary.failures]))

    def of_the_service(each: Trouble, number: int) -> None:
        each.of_the_service(number)
        progress(done + number, "of the service itself")

    share(count // 10, lanes, between)
    resident, done = _resident_bytes(), count // 10
    share(count - whole - done, lanes, between)
    done = count - whole
    share(whole, troubles, of_the_service)
    summary = _summary(lanes)
    grown = _resident_bytes() - resident
    if grown > GROWTH_BYTES:
        summary.failures.append(f"memory grew by {grown} bytes")
    summary.figures["memory grown, MB"] = grown / 1e6
    return summary


def _summary(lanes: Sequence[Lane]) -> Summary:
    whole = Summary()
    for lane in lanes:
        whole.tried.update(lane.summary.tried)
        whole.failures += lane.summary.failures
    whole.figures["latest answer, seconds over its budget"] = max(lane.worst_late_seconds for lane in lanes)
    whole.figures["longest until back, seconds"] = max(lane.longest_back_seconds for lane in lanes)
    return whole


def _held() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(count: int, seed_number: int, progress: Progress) -> Summary:
    """Go through ``count`` troubles; one in 25 befalls a service itself."""
    before = _held()
    with tempfile.TemporaryDirectory(prefix="kvshelf-trouble-") as directory, ExitStack() as closing:
        troubles: list[Trouble] = []
        for number in range(SERVICES if count >= MANY else 1):
            place = Path(directory) / str(number)
            place.mkdir()
            served = Served(place)
            closing.callback(served.close)
            troubles.append(Trouble(served, seed_number * 10 + number, closing))
        summary = go_through(troubles, count, progress)
    if (after := _held()) != before:
        summary.failures.append(f"descriptors and threads: {before} before, {after} after")
    return summary


TRIAL = Trial(
    name="client_trouble",
    about="a client answers within its budget whatever happens, is never wrong, and works again by itself",
    unit="troubles",
    full=10_000,
    run=run,
)
