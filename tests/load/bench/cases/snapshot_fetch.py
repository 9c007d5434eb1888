"""A snapshot out of Redis through the service: what a request pays that resumes right where its session was left."""

from kvshelf_client import StoreRecord
from kvshelf_client.words import Provenance, RecordClass
from tests.load.bench.base import Case, Figures
from tests.load.bench.measure import rate_gb_s
from tests.load.bench.sizes import BLOCK_TOKENS, SNAPSHOT_BYTES
from tests.load.bench.stage import Stage

_BLOCKS = 4


class SnapshotFetch(Case):
    """The engine still holds the global KV, so that the snapshot is all that the plan loads."""

    name = "snapshot_fetch"
    references = ("snapshot_tcp",)
    ratios = {"snapshot_fetch_vs_tcp": ("snapshot_fetch_gb_s", "snapshot_tcp_gb_s")}

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._service = stage.service()
        self._tokens = stage.prompt(_BLOCKS)
        boundary = _BLOCKS * BLOCK_TOKENS
        key, payload = self._service.keys(self._tokens)[-1], stage.payload(SNAPSHOT_BYTES)
        self._snapshot = StoreRecord(RecordClass.SNAPSHOT, key, boundary, payload, Provenance.EXACT)

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        service = self._service
        service.client.store(service.namespace, [self._snapshot])
        with service.leased(self._tokens, hbm_tokens=_BLOCKS * BLOCK_TOKENS) as plan:
            assert service.fetch(plan) == SNAPSHOT_BYTES
            return {"snapshot_fetch_gb_s": rate_gb_s(lambda: service.fetch(plan), self.stage.sizes.seconds)}
