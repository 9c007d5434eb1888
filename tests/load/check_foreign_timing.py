"""Ask for what is another tenant's and for what never was, in turns, and see whether the times tell the two apart.

    python -m tests.load.check_foreign_timing [--rounds 4000]

A real face on a socket, in-process tiers behind it, one connection. Exit status 1 when the times of the two differ by
more than chance would have them and by more than 5 % of their median. A minute or so.
"""

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import NormalDist, median

import httpx

from service.cli import console
from storage.clock import ManualClock, SystemClock
from tests.support.engine import plan, register, tokens
from tests.support.live import live
from tests.support.service import make_parts
from tests.support.tokens import two_tenants

_LIKELY = 0.001
_NOTICEABLE = 0.05
_PROMPT = tokens(1000)


def rank_test(first: Sequence[float], second: Sequence[float]) -> float:
    """The chance that two samples of one distribution differ in their order as these do (Mann-Whitney, two-sided)."""
    ranked = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    rank_sum = sum(rank for rank, (_, group) in enumerate(ranked, 1) if group == 0)
    m, n = len(first), len(second)
    mean, deviation = m * (m + n + 1) / 2, math.sqrt(m * n * (m + n + 1) / 12)
    return 2 * (1 - NormalDist().cdf(abs(rank_sum - mean) / deviation))


def compare(name: str, ask: Callable[[str], object], foreign: str, rounds: int, random: Random) -> bool:
    """Time both kinds of question in random order; False where the times tell them apart."""
    clock, absent = SystemClock(), "x" * len(foreign)
    seconds: dict[str, list[float]] = {foreign: [], absent: []}
    for _ in range(rounds):
        for target in random.sample([foreign, absent], 2):
            started = clock.monotonic()
            ask(target)
            seconds[target].append(clock.monotonic() - started)
    medians = [median(seconds[target]) for target in (foreign, absent)]
    chance = rank_test(seconds[foreign], seconds[absent])
    differs = chance < _LIKELY and abs(medians[0] / medians[1] - 1) > _NOTICEABLE
    console.say(
        f"{'FAIL' if differs else 'ok  '} {name}: {medians[0] * 1e6:.1f} us foreign, {medians[1] * 1e6:.1f} us absent,"
        f" {rounds} each; by chance with p = {chance:.3f}"
    )
    return not differs


def check(rounds: int, random: Random) -> bool:
    """All kinds of questions; False when one tells."""
    with tempfile.TemporaryDirectory() as directory:
        parts = make_parts(Path(directory), ManualClock(), access=two_tenants())
        with live(parts) as running, _client(running.url, "b") as theirs, _client(running.url, "a") as mine:
            register(theirs, "theirs")
            lease_id = plan(theirs, _PROMPT, "theirs")["lease"]["lease_id"]
            good = [
                compare("namespace", lambda name: mine.get(f"/v1/namespaces/{name}"), "theirs", rounds, random),
                compare("plan", lambda name: _plan(mine, name), "theirs", rounds, random),
                compare("lease", lambda name: mine.get(f"/v1/leases/{name}/fetch"), lease_id, rounds, random),
            ]
        parts.close()
    return all(good)


def _plan(client: httpx.Client, name: str) -> object:
    headers = {"content-type": "application/octet-stream"}
    return client.post(f"/v1/namespaces/{name}/plan", content=_PROMPT, headers=headers)


def _client(url: str, token: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"})


def main() -> int:
    """Run the check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4000, help="questions of each kind (default: 4000)")
    parser.add_argument("--seed", type=int, default=1, help="of the order (default: 1)")
    arguments = parser.parse_args()
    return 0 if check(arguments.rounds, Random(arguments.seed)) else 1


if __name__ == "__main__":
    sys.exit(main())
