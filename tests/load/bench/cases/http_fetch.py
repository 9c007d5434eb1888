"""Warm blocks over HTTP with the shipped client, checksums on."""

from tests.load.bench.base import Case, Figures
from tests.load.bench.measure import GB, cpu_seconds, rate_gb_s
from tests.load.bench.stage import Stage


class HttpFetch(Case):
    """One lease of a prompt's blocks, fetched again and again."""

    name = "http_fetch"
    references = ("tcp", "redis_py")
    ratios = {
        "http_fetch_vs_tcp": ("http_fetch_gb_s", "tcp_gb_s"),
        "http_fetch_vs_redis_mget256": ("http_fetch_gb_s", "redis_mget256_gb_s"),
        "http_fetch_vs_redis_best": ("http_fetch_gb_s", "redis_best_gb_s"),
    }
    costs = ("cpu_s_per_gb_http_fetch",)

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._service = stage.service()
        self._tokens = stage.prompt(stage.sizes.blocks)
        self._service.client.store(self._service.namespace, stage.records(self._service, self._tokens), durable=False)

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        with self._service.leased(self._tokens) as plan:
            moved = self._service.fetch(plan)
            before = cpu_seconds(self._service.pid), cpu_seconds()
            total = 0

            def fetch() -> int:
                nonlocal total
                total += moved
                assert self._service.fetch(plan) == moved
                return moved

            rate = rate_gb_s(fetch, self.stage.sizes.seconds)
            server, client = cpu_seconds(self._service.pid) - before[0], cpu_seconds() - before[1]
        return {
            "http_fetch_gb_s": rate,
            "cpu_s_per_gb_http_fetch": (server + client) / total * GB,
            "server_cpu_s_per_gb": server / total * GB,
            "client_cpu_s_per_gb": client / total * GB,
        }
