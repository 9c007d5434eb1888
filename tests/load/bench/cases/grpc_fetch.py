"""Warm blocks over gRPC with the shipped transport, into buffers that are there, checksums on."""

from kvshelf_client.deadline import Deadline
from kvshelf_client.requests import Fetch
from kvshelf_client.transport import TransportOptions, transport_module
from tests.load.bench.base import Case, Figures
from tests.load.bench.measure import GB, cpu_seconds, rate_gb_s
from tests.load.bench.sinks import ReusedBuffers
from tests.load.bench.stage import Stage


class GrpcFetch(Case):
    """One lease of a prompt's blocks, fetched again and again."""

    name = "grpc_fetch"
    references = ("tcp",)
    ratios = {"grpc_fetch_vs_tcp": ("grpc_fetch_gb_s", "tcp_gb_s")}
    costs = ("cpu_s_per_gb_grpc_fetch",)

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._service = stage.service()
        self._tokens = stage.prompt(stage.sizes.blocks)
        self._service.client.store(self._service.namespace, stage.records(self._service, self._tokens), durable=False)
        self._transport = transport_module(self._service.grpc_url).connect(self._service.grpc_url, TransportOptions())
        stage.closing.callback(self._transport.close)
        self._buffers = ReusedBuffers(stage.sizes.prompt_bytes)

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        with self._service.leased(self._tokens) as plan:
            assert plan.lease is not None
            lease_id = plan.lease.lease_id
            self._fetch(lease_id)
            before, total = (cpu_seconds(self._service.pid), cpu_seconds()), self._buffers.moved
            rate = rate_gb_s(lambda: self._fetch(lease_id), self.stage.sizes.seconds)
            total = self._buffers.moved - total
            server, client = cpu_seconds(self._service.pid) - before[0], cpu_seconds() - before[1]
        return {
            "grpc_fetch_gb_s": rate,
            "cpu_s_per_gb_grpc_fetch": (server + client) / total * GB,
            "grpc_server_cpu_s_per_gb": server / total * GB,
            "grpc_client_cpu_s_per_gb": client / total * GB,
        }

    def _fetch(self, lease_id: str) -> int:
        before = self._buffers.moved
        self._buffers.restart()
        self._transport.call(Fetch(lease_id, self._buffers), Deadline(60))
        moved = self._buffers.moved - before
        assert moved == self.stage.sizes.prompt_bytes
        return moved
