"""Cold blocks over HTTP: neither in the service's memory nor in the page cache."""

import time

from tests.load.bench.base import Case, Figures
from tests.load.bench.measure import GB
from tests.load.bench.sizes import MIB
from tests.load.bench.stage import Stage
from tests.support.page_cache import drop

_MEMORY_BYTES = 128 * MIB
"""Room to read ahead, not for the prompts."""


class ColdFetch(Case):
    """Prompts whose blocks lie among those of the others, fetched in turns: more than the service may keep in memory.

    The page cache is dropped before each. ``cold_fetch`` is the fetch alone, as in the warm case; ``cold_request`` has
    the plan before it and the release behind it, too.
    """

    name = "cold_fetch"
    references = ("disk_random", "lmdb_inline")
    ratios = {
        "cold_fetch_vs_disk": ("cold_fetch_gb_s", "disk_random_gb_s"),
        "cold_request_vs_disk": ("cold_request_gb_s", "disk_random_gb_s"),
        "cold_fetch_vs_lmdb_inline": ("cold_fetch_gb_s", "lmdb_inline_cold_gb_s"),
    }

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._service = stage.service("cold", memory_bytes=_MEMORY_BYTES)
        self._prompts = [stage.prompt(stage.sizes.blocks) for _ in range(stage.sizes.cold_prompts)]
        prompts = [stage.records(self._service, tokens) for tokens in self._prompts]
        for start in range(0, stage.sizes.blocks, 32):
            among_others = [
                prompt[block] for block in range(start, start + 32) for prompt in prompts if block < len(prompt)
            ]
            self._service.client.store(self._service.namespace, among_others)
        self._next = 0

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        moved, fetching, asking = 0, 0.0, 0.0
        while not moved or asking < self.stage.sizes.seconds:
            tokens = self._prompts[self._next]
            self._next = (self._next + 1) % len(self._prompts)
            drop(self._service.data_dir / "segments")
            asked = time.perf_counter()
            with self._service.leased(tokens) as plan:
                began = time.perf_counter()
                moved += self._service.fetch(plan)
                fetching += time.perf_counter() - began
            asking += time.perf_counter() - asked
        return {"cold_fetch_gb_s": moved / fetching / GB, "cold_request_gb_s": moved / asking / GB}
