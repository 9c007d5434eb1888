"""Random histories of an SSD tier, restarts included, against a dictionary that knows what must be there."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvshelf_client.words import MissReason, Provenance
from storage.base import Entry, Hold, Loaded, Record
from storage.clock import ManualClock
from storage.ssd import SsdTier, WhenFull
from tests.support.records import fetch, make_id, make_record
from tests.support.scratch import SCRATCH

TTL_SECONDS = 1000.0
NUMBERS = st.lists(st.integers(0, 25), min_size=1, max_size=6)
SIZES = st.sampled_from([0, 1, 3000, 3968, 3969, 30_000, 200_000])


class SsdHistory(RuleBasedStateMachine):
    """``kept`` maps a number to the record that was stored and its last use.

    With ample room the tier must have exactly what the dictionary has; in a small one it may have lost some, but must
    never have anything else, and must not have lost what it was just told to keep.
    """

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(dir=SCRATCH))
        self.clock = ManualClock()
        self.kept: dict[int, tuple[Record, float]] = {}
        self.holds: list[tuple[Hold, list[Record | None]]] = []
        self.content = 0

    @initialize(is_ample=st.booleans(), when_full=st.sampled_from(WhenFull))
    def begin(self, is_ample: bool, when_full: WhenFull) -> None:
        self.is_ample, self.when_full = is_ample, when_full
        self.tier = self.open()

    def open(self) -> SsdTier:
        return SsdTier(
            self.directory,
            clock=self.clock,
            ttl_seconds=TTL_SECONDS,
            budget_bytes=(64 << 20) if self.is_ample else (4 << 20),
            when_full=self.when_full,
        )

    def live(self, number: int) -> Record | None:
        record, used_at = self.kept.get(number, (None, 0.0))
        return record if self.clock.now() - used_at < TTL_SECONDS else None

    @rule(numbers=NUMBERS, size=SIZES, provenance=st.sampled_from(Provenance), durable=st.booleans())
    def write(self, numbers: list[int], size: int, provenance: Provenance, durable: bool) -> None:
        records = []
        for number in numbers:
            self.content += 1
            records.append(make_record(number, size=size, provenance=provenance, content=self.content))
        for number, record, result in zip(numbers, records, self.tier.write(records, durable=durable), strict=True):
            old = self.live(number)
            is_better = old is None or record.provenance > old.provenance
            if self.is_ample:
                expected = "duplicate" if not is_better else "stored" if old is None else "replaced"
                assert result.outcome == expected
            if result.outcome in ("stored", "replaced"):
                self.kept[number] = (record, self.clock.now())
            elif result.outcome == "duplicate":
                assert old is not None
                self.kept[number] = (old, self.clock.now())

    @rule(numbers=NUMBERS)
    def touch(self, numbers: list[int]) -> None:
        found = self.tier.lookup([make_id(number) for number in numbers])
        assert self.tier.touch([make_id(number) for number in numbers]) == sum(isinstance(one, Entry) for one in found)
        for number, one in zip(numbers, found, strict=True):
            if isinstance(one, Entry):
                self.kept[number] = (self.kept[number][0], self.clock.now())

    @rule(numbers=NUMBERS)
    def delete(self, numbers: list[int]) -> None:
        self.tier.delete([make_id(number) for number in numbers])
        for number in numbers:
            self.kept.pop(number, None)

    @rule(numbers=NUMBERS)
    def hold(self, numbers: list[int]) -> None:
        hold = self.tier.hold([make_id(number) for number in numbers])
        there = [self.live(n) if isinstance(one, Entry) else None for n, one in zip(numbers, hold.entries, strict=True)]
        self.holds.append((hold, there))

    @rule()
    def release(self) -> None:
        for hold, there in self.holds:
            for record, result in zip(there, hold.read(0, len(there)), strict=True):
                assert isinstance(result, Loaded) == (record is not None)
                assert record is None or result.payload == record.payload  # type: ignore[union-attr]
            hold.release()
        self.holds.clear()

    @rule(seconds=st.sampled_from([1.0, 300.0, 999.0, 1001.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def keep_house(self) -> None:
        self.tier.maintain()

    @rule()
    def restart(self) -> None:
        self.release()
        usage = self.tier.usage()
        self.tier.close()
        self.tier = self.open()
        assert self.tier.usage()[:2] == usage[:2]
        assert self.tier.usage().owners == usage.owners

    @invariant()
    def everything_is_where_it_should_be(self) -> None:
        if not hasattr(self, "tier"):
            return
        self.tier.check_integrity()
        for number, payload in enumerate(fetch(self.tier, [make_id(number) for number in range(26)])):
            record = self.live(number)
            if isinstance(payload, bytes):
                assert record is not None
                assert payload == record.payload
            else:
                assert payload is not MissReason.CORRUPT
                assert record is None or not self.is_ample

    def teardown(self) -> None:
        if hasattr(self, "tier"):
            self.release()
            self.tier.close()
        shutil.rmtree(self.directory)


TestSsdHistories = SsdHistory.TestCase
TestSsdHistories.settings = settings(
    max_examples=50, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
