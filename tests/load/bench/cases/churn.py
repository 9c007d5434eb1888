"""The SSD tier from inside: eight generations of expiring records within one budget."""

import shutil

from kvshelf_client.frames import checksum_of
from kvshelf_client.words import Provenance
from storage.base import Record, RecordId
from storage.clock import ManualClock
from storage.ssd import SsdTier
from tests.load.bench.base import Case, Figures
from tests.load.bench.measure import rate_gb_s
from tests.load.bench.sizes import BLOCK_BYTES
from tests.load.bench.stage import Stage

_GENERATIONS = 8
_BATCH = 64
_FRESH_SHARE = 0.75
_TTL_SECONDS = 3600.0


class Churn(Case):
    """Each generation writes 3/4 of the budget anew after the one before has expired; in the end the budget is filled.

    The first generation also makes the segment files, so the last is compared with the second.
    """

    name = "churn"
    ratios = {
        "churn_last_vs_second": ("churn_last_gb_s", "churn_second_gb_s"),
        "churn_live_vs_budget": ("churn_live_share", "churn_budget_share"),
    }

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        payloads = [stage.payload() for _ in range(1024)]
        self._contents = [(payload, checksum_of(payload)) for payload in payloads]
        self._number = 0

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        directory, clock, budget = self.stage.directory / "churn", ManualClock(), self.stage.sizes.churn_budget_bytes
        tier = SsdTier(directory, clock=clock, ttl_seconds=_TTL_SECONDS, budget_bytes=budget)
        rates = []
        for _ in range(_GENERATIONS):
            rates.append(rate_gb_s(lambda: self._write(tier, int(budget * _FRESH_SHARE)), 0))
            clock.advance(_TTL_SECONDS + 1)
            tier.maintain()
        self._write(tier, 2 * budget)
        live = tier.usage().live_bytes
        tier.close()
        shutil.rmtree(directory)
        return {
            "churn_second_gb_s": rates[1],
            "churn_last_gb_s": rates[-1],
            "churn_live_share": live / budget,
            "churn_budget_share": 1.0,
        }

    def _write(self, tier: SsdTier, size_bytes: int) -> int:
        written = 0
        while written < size_bytes:
            tier.write([self._record() for _ in range(_BATCH)], durable=False)
            written += _BATCH * BLOCK_BYTES
        return written

    def _record(self) -> Record:
        self._number += 1
        payload, checksum = self._contents[self._number % len(self._contents)]
        return Record(RecordId(self._number.to_bytes(32, "big")), payload, checksum, Provenance.EXACT)
