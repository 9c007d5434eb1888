"""What encryption at rest costs: the SSD tier from inside, plain and sealed, warm reads and relaxed stores."""

import itertools
import os

from kvshelf_client.frames import checksum_of
from kvshelf_client.words import Provenance
from storage.base import Record, RecordId, SilentObserver, Tier
from storage.clock import SystemClock
from storage.sealed import SEAL_BYTES, TenantKeys
from storage.sealed.tier import SealedTier
from storage.ssd import SsdTier
from tests.load.bench.base import Case, Figures
from tests.load.bench.measure import rate_gb_s
from tests.load.bench.sizes import BLOCK_BYTES
from tests.load.bench.stage import Stage

_BATCH = 16


class Encryption(Case):
    """Two tiers alike, one of them sealed; a prompt is read from each, and stored in each under new ids."""

    name = "encryption"
    ratios = {
        "sealed_read_vs_plain": ("sealed_read_gb_s", "plain_read_gb_s"),
        "sealed_store_vs_plain": ("sealed_store_gb_s", "plain_store_gb_s"),
    }

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._payloads = [stage.payload() for _ in range(stage.sizes.blocks)]
        self._checksums = [checksum_of(payload) for payload in self._payloads]
        self._numbers = itertools.count()
        keys = TenantKeys({1: os.urandom(32)})
        self._tiers = {
            "plain": self._ssd("plain"),
            "sealed": SealedTier(self._ssd("sealed"), lambda _: keys, os.urandom, SilentObserver()),
        }
        self._ids = {name: self._store(tier) for name, tier in self._tiers.items()}

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        seconds = self.stage.sizes.seconds / 2
        figures: Figures = {}
        for name, tier in self._tiers.items():
            figures[f"{name}_read_gb_s"] = rate_gb_s(lambda tier=tier, name=name: self._read(tier, name), seconds)  # type: ignore[misc]
            figures[f"{name}_store_gb_s"] = rate_gb_s(
                lambda tier=tier: len(self._store(tier)) * BLOCK_BYTES,  # type: ignore[misc]
                seconds,
            )
            self._ids[name] = self._store(tier)  # what is read next time must not have been evicted by then
        return figures

    def _ssd(self, name: str) -> SsdTier:
        tier = SsdTier(
            self.stage.directory / f"encryption-{name}",
            clock=SystemClock(),
            ttl_seconds=3600,
            budget_bytes=self.stage.sizes.churn_budget_bytes,
            max_record_bytes=BLOCK_BYTES + SEAL_BYTES,
        )
        self.stage.closing.callback(tier.close)
        return tier

    def _store(self, tier: Tier) -> list[RecordId]:
        records = [
            Record(RecordId(next(self._numbers).to_bytes(32, "big")), payload, checksum, Provenance.EXACT)
            for payload, checksum in zip(self._payloads, self._checksums, strict=True)
        ]
        for start in range(0, len(records), _BATCH):
            tier.write(records[start : start + _BATCH], durable=False)
        return [record.id for record in records]

    def _read(self, tier: Tier, name: str) -> int:
        hold = tier.hold(self._ids[name])
        for start in range(0, len(hold.entries), _BATCH):
            hold.read(start, start + _BATCH)
        hold.release()
        return len(self._ids[name]) * BLOCK_BYTES
