"""The local path: from a lease to bytes that were checked, with the service asked only where they are."""

from collections.abc import Iterator
from contextlib import contextmanager

from kvshelf_client import Client, Plan
from kvshelf_client.deadline import Deadline
from kvshelf_client.http.steps import wait
from kvshelf_client.local.inplace import LocalReader
from kvshelf_client.local.loading import load
from kvshelf_client.local.peer import Opened, greet
from kvshelf_client.local.segments import Segments
from kvshelf_client.local.wire import Open
from kvshelf_client.requests import FindLocal
from kvshelf_client.steps import run
from kvshelf_client.transport import TransportOptions, transport_module
from tests.load.bench.base import Case, Figures
from tests.load.bench.measure import milliseconds, rate_gb_s
from tests.load.bench.sinks import ReusedBuffers
from tests.load.bench.stage import Service, Stage
from tests.support.client import Buffers, loaded_bytes
from tests.support.page_cache import bring_in


def _stored_prompt(stage: Stage, service: Service) -> bytes:
    """A prompt that was stored."""
    tokens = stage.prompt(stage.sizes.blocks)
    service.client.store(service.namespace, stage.records(service, tokens), durable=False)
    return tokens


@contextmanager
def _leased_in_cache(service: Service, tokens: bytes) -> Iterator[Plan]:
    """A plan of a prompt whose blocks are in the page cache: other cases may have pushed them out meanwhile."""
    bring_in(service.data_dir / "segments")
    with service.leased(tokens) as plan:
        yield plan


class _LocalCase(Case):
    """A prompt that was stored, and a conversation with the local face."""

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._service = stage.service()
        self._tokens = _stored_prompt(stage, self._service)
        options = TransportOptions()
        rest = transport_module(self._service.url).connect(self._service.url, options)
        stage.closing.callback(rest.close)
        address = rest.call(FindLocal(), Deadline(10))
        self._peer = run(greet(address, None, options.max_payload_bytes, Deadline(10)), wait)
        stage.closing.callback(self._peer.channel.close)
        self._segments = Segments()
        self._buffers = ReusedBuffers(stage.sizes.prompt_bytes)

    @contextmanager
    def _leased(self) -> Iterator[str]:
        """A lease of the prompt's blocks."""
        with _leased_in_cache(self._service, self._tokens) as plan:
            assert plan.lease is not None
            yield plan.lease.lease_id

    def _opened(self, lease_id: str) -> Opened:
        """Where the blocks of a lease are."""
        return run(self._peer.open(Open(lease_id, 0, False), self._buffers, self._segments, Deadline(10)), wait)


class LocalLease(_LocalCase):
    """Blocks of a lease asked for over the local socket, until it is known in which mapped file, and where, each is."""

    name = "local_lease"
    costs = ("lease_256_ms",)

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        with self._leased() as lease_id:
            assert len(self._opened(lease_id).ranges) == self.stage.sizes.blocks
            return {"lease_256_ms": milliseconds(lambda: self._opened(lease_id), self.stage.sizes.seconds)}


class LocalCopy(_LocalCase):
    """Blocks of a lease copied into buffers and checked there."""

    name = "local_copy"
    references = ("memcpy",)
    ratios = {"local_copy_vs_memcpy": ("local_copy_gb_s", "memcpy_gb_s")}

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        with self._leased() as lease_id:
            opened = self._opened(lease_id)
            self._load(lease_id, opened)
            return {"local_copy_gb_s": rate_gb_s(lambda: self._load(lease_id, opened), self.stage.sizes.seconds)}

    def _load(self, lease_id: str, opened: Opened) -> int:
        before = self._buffers.moved
        self._buffers.restart()
        run(load(lease_id, opened, self._buffers, self._peer, Deadline(10)), wait)
        return self._buffers.moved - before


class LocalVerify(_LocalCase):
    """Blocks of a lease checked where they are, asked for and confirmed anew each time."""

    name = "local_verify"
    references = ("memcpy",)
    ratios = {"local_verify_vs_memcpy": ("local_verify_gb_s", "memcpy_gb_s")}

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._reader = LocalReader(self._service.url)
        stage.closing.callback(self._reader.close)

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        with self._leased() as lease_id:
            self._verify(lease_id)
            return {"local_verify_gb_s": rate_gb_s(lambda: self._verify(lease_id), self.stage.sizes.seconds)}

    def _verify(self, lease_id: str) -> int:
        with self._reader.view(lease_id) as view:
            assert all(block.is_mapped for block in view.blocks)
            return sum(len(block.payload) for block in view.blocks)


class LocalFetch(Case):
    """The same with the shipped client, which finds the local path by itself: asks, copies, checks."""

    name = "local_fetch"
    references = ("memcpy", "tcp")
    ratios = {
        "local_fetch_vs_memcpy": ("local_fetch_gb_s", "memcpy_gb_s"),
        "local_fetch_vs_tcp": ("local_fetch_gb_s", "tcp_gb_s"),
    }

    def open(self, stage: Stage) -> None:
        """See :meth:`Case.open`."""
        super().open(stage)
        self._service = stage.service()
        self._tokens = _stored_prompt(stage, self._service)
        self._client = Client(self._service.url, strict=True, budget_seconds=10)
        stage.closing.callback(self._client.close)
        self._buffers = Buffers(self._service.namespace)

    def run(self) -> Figures:
        """See :meth:`Case.run`."""
        with _leased_in_cache(self._service, self._tokens) as plan:
            namespace = self._service.namespace

            def fetch() -> int:
                return loaded_bytes(self._client.fetch_into(plan, self._buffers), namespace)

            fetch()
            return {"local_fetch_gb_s": rate_gb_s(fetch, self.stage.sizes.seconds)}
