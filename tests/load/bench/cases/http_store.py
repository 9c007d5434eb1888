"""New blocks over HTTP with the shipped client: relaxed against the socket, durable against the disk."""

from typing import ClassVar

from tests.load.bench.base import Case, Figures
from tests.load.bench.measure import rate_gb_s
from tests.load.bench.stage import Stage


class _Store(Case):
    """Prompts that were never stored before, one store each."""

    durable: ClassVar[bool]
    figure: ClassVar[str]

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._service = stage.service()

    def run(self) -> Figures:
        """See :meth:`Case.run`. What is sent is made before the clock starts."""
        stage = self.stage
        count = max(1, round(stage.sizes.seconds * 30))
        prompts = [stage.records(self._service, stage.prompt(stage.sizes.blocks)) for _ in range(count)]
        turns = iter(prompts)

        def store_all() -> int:
            for records in turns:
                answer = self._service.client.store(self._service.namespace, records, durable=self.durable)
                assert answer.counts == {"stored": stage.sizes.blocks}
            return count * stage.sizes.prompt_bytes

        return {self.figure: rate_gb_s(store_all, 0)}


class HttpStore(_Store):
    """Relaxed: nothing waits for the disk."""

    name = "http_store"
    references = ("tcp",)
    ratios = {"http_store_vs_tcp": ("http_store_gb_s", "tcp_gb_s")}
    durable = False
    figure = "http_store_gb_s"


class DurableStore(_Store):
    """Durable: each commit is synced before it is acknowledged."""

    name = "durable_store"
    references = ("disk_write",)
    ratios = {"durable_store_vs_disk": ("durable_store_gb_s", "disk_write_gb_s")}
    durable = True
    figure = "durable_store_gb_s"
