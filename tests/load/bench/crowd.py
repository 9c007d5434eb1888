"""Many clients at the same time, in a few processes of several threads each, as engines on a host are."""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection

from kvshelf_client import Client
from tests.load.bench.measure import GB

PROCESSES = 4

Work = Callable[[Client, int], int]
"""One step of a client, by its number; returns the payload bytes that it moved. A function of a module."""


class Crowd:
    """Clients that wait to be told for how long to work. See :func:`crowd_of`."""

    def __init__(self, pipes: list[Connection]) -> None:
        self._pipes = pipes

    def work(self, seconds: float) -> float:
        """Let all clients work for at least so long, one step at least; returns GB/s in all."""
        started = time.perf_counter()
        for pipe in self._pipes:
            pipe.send(seconds)
        moved: int = sum(pipe.recv() for pipe in self._pipes)
        return moved / (time.perf_counter() - started) / GB


@contextmanager
def crowd_of(url: str, clients: int, work: Work) -> Iterator[Crowd]:
    """Start ``clients`` clients of a service; they end with the block."""
    context = multiprocessing.get_context("spawn")
    processes = min(PROCESSES, clients)
    pipes, members = [], []
    for number in range(processes):
        ours, theirs = context.Pipe()
        numbers = range(number, clients, processes)
        members.append(context.Process(target=_member, args=(theirs, url, numbers, work), daemon=True))
        members[-1].start()
        theirs.close()
        pipes.append(ours)
    crowd = Crowd(pipes)
    crowd.work(0)  # They have started once they answer.
    try:
        yield crowd
    finally:
        for pipe, member in zip(pipes, members, strict=True):
            pipe.close()
            member.join(30)


def _member(pipe: Connection, url: str, numbers: range, work: Work) -> None:
    clients = {number: Client(url, strict=True, budget_seconds=120) for number in numbers}

    def steps(number: int, deadline: float) -> int:
        moved = work(clients[number], number)
        while time.perf_counter() < deadline:
            moved += work(clients[number], number)
        return moved

    with ThreadPoolExecutor(len(numbers)) as threads:
        while True:
            try:
                deadline = time.perf_counter() + pipe.recv()
            except EOFError:
                return
            pipe.send(sum(threads.map(steps, numbers, [deadline] * len(numbers))))
