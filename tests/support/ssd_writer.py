"""A process that writes to an SSD tier until it is killed, and says on standard output what was acknowledged.

``python -m tests.support.ssd_writer DIRECTORY BUDGET_BYTES FIRST_NUMBER THREADS`` prints a line for each call that
returned: ``+`` and the numbers that were stored durably, ``-`` and those deleted. A line is one write to the pipe.
"""

import os
import random
import sys
import threading
from pathlib import Path

from storage.base import WriteOutcome
from storage.clock import SystemClock
from storage.ssd import SsdTier
from tests.support.records import make_id, make_record
from tests.support.ssd import TTL_SECONDS

SIZES = (100, 5000, 113_920)
STRIDE = 1_000_000
"""Numbers of one thread lie this far from those of the next."""


def size_of(number: int) -> int:
    """The payload size of record ``number``."""
    return SIZES[number % len(SIZES)]


def say(sign: str, numbers: list[int]) -> None:
    """Tell the reader, in one write, that these were acknowledged."""
    os.write(1, f"{sign} {' '.join(map(str, numbers))}\n".encode())


def write_for_ever(tier: SsdTier, first: int) -> None:
    """Store durably in small batches; now and then touch, delete, store relaxed, and keep house."""
    rng, number = random.Random(first), first
    while True:
        numbers = list(range(number, number + rng.randint(1, 6)))
        number = numbers[-1] + 1
        results = tier.write([make_record(one, size=size_of(one)) for one in numbers], durable=True)
        say("+", [one for one, result in zip(numbers, results, strict=True) if result.outcome is WriteOutcome.STORED])
        tier.touch([make_id(rng.randrange(first, number)) for _ in range(5)])
        if rng.random() < 0.2:
            tier.write([make_record(-number, size=50_000)], durable=False)
        if rng.random() < 0.1:
            victim = rng.randrange(first, number)
            say("?", [victim])
            tier.delete([make_id(victim)])
            say("-", [victim])
        if rng.random() < 0.1:
            tier.maintain()


def main(directory: str, budget_bytes: str, first: str, threads: str) -> None:
    """Open the tier and write from several threads."""
    tier = SsdTier(Path(directory), clock=SystemClock(), ttl_seconds=TTL_SECONDS, budget_bytes=int(budget_bytes))
    for index in range(1, int(threads)):
        threading.Thread(target=write_for_ever, args=(tier, int(first) + index * STRIDE), daemon=True).start()
    write_for_ever(tier, int(first))


if __name__ == "__main__":
    main(*sys.argv[1:])
