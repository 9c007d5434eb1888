"""The power is cut at random moments of a busy tier's life: what was acknowledged as durable is there or was evicted.

Everything that the tier has not synced is lost or torn at random in what is opened afterwards.
"""

import random
import shutil
import tempfile
from pathlib import Path

import pytest

from kvshelf_client.words import MissReason
from storage.base import WriteOutcome
from storage.clock import ManualClock
from storage.ssd import SsdTier, WhenFull
from tests.support.power_cut import VolatileFiles, cut_power
from tests.support.records import EXACT, REPLAYED, fetch, look, make_id, make_record
from tests.support.scratch import SCRATCH

BUDGET_BYTES = 3 << 20
TTL_SECONDS = 1000.0
CALLS = 200
CUT_SHARE = 0.25
NUMBERS = 100
NEW = {WriteOutcome.STORED, WriteOutcome.REPLACED}
SAFE_CALLS = 3
"""What the last so many durable calls stored is too young to be evicted."""


class Life:
    """One tier's life, and what its caller was promised."""

    def __init__(self, directory: Path, seed: int, when_full: WhenFull) -> None:
        self.when_full = when_full
        self.directory, self.rng, self.clock = directory, random.Random(seed), ManualClock()
        self.durable: dict[int, set[bytes]] = {}
        """For each number: the payloads it may have, since it was acknowledged as durable."""
        self.any: dict[int, set[bytes]] = {}
        """For each number: every payload that was ever handed in."""
        self.deleted: set[int] = set()
        self.young: list[list[int]] = []
        self.cuts = 0
        self.content = 0
        self.tier = self.open(directory, lambda path: VolatileFiles(path, self.maybe_cut))

    def open(self, directory: Path, make_files: object) -> SsdTier:
        return SsdTier(
            directory,
            clock=self.clock,
            ttl_seconds=TTL_SECONDS,
            budget_bytes=BUDGET_BYTES,
            when_full=self.when_full,
            make_files=make_files,  # type: ignore[arg-type]
        )

    def maybe_cut(self, files: VolatileFiles) -> None:
        """Cut the power on a copy, open that, and look."""
        if self.rng.random() > CUT_SHARE or not hasattr(self, "tier"):
            return
        self.cuts += 1
        target = self.directory.parent / "cut"
        cut_power(self.directory, target, files, self.tier, self.rng)
        tier = self.open(target, VolatileFiles.__base__)
        tier.check_integrity()
        self.look_at(tier)
        tier.check_integrity()
        tier.close()
        shutil.rmtree(target)

    def look_at(self, tier: SsdTier) -> None:
        for number, payloads in self.any.items():
            (found,) = fetch(tier, [make_id(number)])
            if isinstance(found, bytes):
                assert found in payloads, f"wrong bytes under {number}"
                assert number not in self.deleted, f"{number} is back from the dead"
            elif number in self.durable:
                assert found is not MissReason.CORRUPT, f"{number} was durable and is lost"
        young = [number for call in self.young for number in call]
        assert look(tier, *young) == [None] * len(young), "what was stored last is gone"

    def write(self, durable: bool) -> None:
        numbers = self.rng.sample(range(NUMBERS), self.rng.randint(1, 6))
        records = []
        for number in numbers:
            self.content += 1
            size, provenance = self.rng.choice([10, 4000, 30_000, 60_000]), self.rng.choice([EXACT, REPLAYED])
            records.append(make_record(number, size=size, content=self.content, provenance=provenance))
            self.any.setdefault(number, set()).add(bytes(records[-1].payload))
            self.deleted.discard(number)
        results = self.tier.write(records, durable=durable)
        if self.when_full is WhenFull.EVICT:
            assert WriteOutcome.FULL not in {result.outcome for result in results}
        if durable:
            kept = [n for n, result in zip(numbers, results, strict=True) if result.outcome is not WriteOutcome.FULL]
            self.durable |= {number: self.any[number] for number in kept}
        for number, result in zip(numbers, results, strict=True):
            if not durable and result.outcome is WriteOutcome.STORED:
                self.durable.pop(number, None)  # the durable one was evicted to make room, or long before
        new = [number for number, result in zip(numbers, results, strict=True) if result.outcome in NEW]
        self.young = [*self.young, new if durable else []][-SAFE_CALLS:]

    def delete(self) -> None:
        number = self.rng.randrange(NUMBERS)
        self.young = [[one for one in call if one != number] for call in self.young]
        self.durable.pop(number, None)
        if self.tier.delete([make_id(number)]):
            self.deleted.add(number)

    def live(self, is_hot: bool) -> None:
        for _ in range(CALLS):
            chance = self.rng.random()
            if is_hot:
                self.tier.touch([make_id(number) for number in range(NUMBERS)])
            if self.when_full is WhenFull.REFUSE and chance < 0.4:
                self.delete()
            elif chance < 0.55:
                self.write(durable=True)
            elif chance < 0.7:
                self.write(durable=False)
            elif chance < 0.8:
                self.delete()
            elif chance < 0.95:
                self.tier.touch([make_id(self.rng.randrange(NUMBERS)) for _ in range(30)])
            elif chance < 0.98:
                self.tier.maintain()
            else:
                self.clock.advance(100)
        self.look_at(self.tier)
        self.tier.close()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("when_full", "is_hot"),
    [(WhenFull.EVICT, False), (WhenFull.EVICT, True), (WhenFull.REFUSE, False)],
    ids=["evicting", "all-in-use", "refusing"],
)
def test_the_power_may_fail_at_any_moment(seed: int, when_full: WhenFull, is_hot: bool) -> None:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory:
        life = Life(Path(directory) / "data", seed, when_full)
        life.live(is_hot)
    assert life.cuts > 10
