"""Kill -9 in the middle of durable writes: nothing acknowledged is lost, nothing wrong is read, usage is exact."""

import random
import subprocess
import sys
import time
from pathlib import Path

from kvshelf_client.words import MissReason
from storage.clock import SystemClock
from storage.ssd import SsdTier
from tests.support.records import fetch, look, make_id, make_record
from tests.support.ssd import TTL_SECONDS
from tests.support.ssd_writer import STRIDE, size_of

ROUNDS = 6
MIB = 1 << 20


class Acknowledged:
    """What a writer process said before it died."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.deleted: set[int] = set()
        self.maybe_deleted: set[int] = set()

    def add(self, line: str) -> None:
        """Take one whole line of the writer."""
        sign, *numbers = line.split()
        if sign == "+":
            self.stored += map(int, numbers)
        elif sign == "?":
            self.maybe_deleted.update(map(int, numbers))
        else:
            self.deleted.update(map(int, numbers))


def write_and_kill(
    directory: Path, budget_bytes: int, first: int, threads: int, calls: int, heard: Acknowledged
) -> None:
    """Run a writer, kill it at some moment after ``calls`` acknowledged calls, and take down what it said."""
    command = [sys.executable, "-m", "tests.support.ssd_writer", str(directory), str(budget_bytes), str(first)]
    with subprocess.Popen([*command, str(threads)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for _ in range(calls):
            line = writer.stdout.readline()
            assert line, "the writer died by itself"
            heard.add(line.decode())
        writer.kill()
        for whole in writer.stdout.read().decode().split("\n")[:-1]:
            heard.add(whole)


def reopen(directory: Path, budget_bytes: int) -> SsdTier:
    start = time.perf_counter()
    tier = SsdTier(directory, clock=SystemClock(), ttl_seconds=TTL_SECONDS, budget_bytes=budget_bytes)
    assert time.perf_counter() - start < 2
    tier.check_integrity()
    return tier


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    directory, budget, rng, heard = tmp_path / "data", 512 * MIB, random.Random(11), Acknowledged()
    for turn in range(ROUNDS):
        write_and_kill(directory, budget, turn * 10_000, 1 + turn % 3, rng.randint(5, 40), heard)
        tier = reopen(directory, budget)
        for number in heard.stored:
            (payload,) = fetch(tier, [make_id(number)])
            if number in heard.deleted:
                assert payload is MissReason.NEVER_STORED
            elif isinstance(payload, bytes) or number not in heard.maybe_deleted:
                assert payload == make_record(number, size=size_of(number)).payload, f"record {number}"
        usage = tier.usage()
        tier.close()
        tier = reopen(directory, budget)
        assert tier.usage() == usage
        tier.close()
    assert len(heard.stored) > 100


def test_a_kill_under_eviction_leaves_no_wrong_byte(tmp_path: Path) -> None:
    directory, budget, rng, heard = tmp_path / "data", 8 * MIB, random.Random(12), Acknowledged()
    for turn in range(ROUNDS):
        first = turn * 10_000
        write_and_kill(directory, budget, first, 2, rng.randint(60, 120), heard)
        tier = reopen(directory, budget)
        assert tier.usage().used_bytes <= budget
        wrong = [
            number
            for number in heard.stored
            if isinstance(payload := fetch(tier, [make_id(number)])[0], bytes)
            and payload != make_record(number, size=size_of(number)).payload
        ]
        assert not wrong
        assert MissReason.CORRUPT not in look(tier, *heard.stored), "the index named what was not there"
        for start in (first, first + STRIDE):
            mine = [number for number in heard.stored if start <= number < start + 10_000]
            newest = [number for number in mine[-10:] if number not in heard.maybe_deleted]
            assert look(tier, *newest) == [None] * len(newest), "the newest go last"
        tier.check_integrity()
        tier.close()
