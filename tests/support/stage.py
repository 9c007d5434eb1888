"""A replay against a real service on a real socket, in-process tiers behind it, on a manual clock."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvshelf_client.answers import Namespace
from kvshelf_client.client import Client
from kvshelf_client.words import RecordClass
from service.access import ANYBODY
from service.replay.replayer import Replayer, ReplayOptions
from service.replay.target import Target
from service.traces.base import Trace
from storage.base import Loaded
from storage.clock import ManualClock
from tests.support.live import Live, live
from tests.support.service import V41, make_parts


class Stage:
    """The service under replay, and a replayer for any trace."""

    def __init__(self, clock: ManualClock, served: Live, client: Client) -> None:
        self.clock = clock
        self.parts = served.parts
        self.url = served.url
        self.client = client

    def register(self, trace: Trace, *, profile: str = V41, shards: int = 1, salt: str = "") -> Namespace:
        """The namespace a replay of the trace runs in."""
        target = Target(profile, 1, salt, shards)
        return target.register(self.client, target.name_for(trace), trace)

    def replayer(
        self,
        trace: Trace,
        *,
        namespace: Namespace | None = None,
        client: Client | None = None,
        options: ReplayOptions | None = None,
    ) -> Replayer:
        """A replayer whose time is the service's."""
        return Replayer(
            client or self.client,
            namespace or self.register(trace),
            trace,
            options or ReplayOptions(),
            clock=self.clock,
            sleep=self.clock.advance,
        )

    def damage(self, namespace: Namespace, record_class: RecordClass, key: bytes) -> None:
        """Flip a bit of a payload where its in-process tier keeps it."""
        tier = self.parts.blocks if record_class is RecordClass.BLOCK else self.parts.snapshots
        hold = tier.hold([self.parts.namespaces.get(ANYBODY, namespace.name).record_id(key)])
        (found,) = hold.read(0, 1)
        assert isinstance(found, Loaded)
        kept = memoryview(found.payload).obj
        assert isinstance(kept, bytearray)
        kept[len(kept) // 2] ^= 1
        hold.release()

    def metric(self, sample: str, **labels: str) -> float:
        """The value of a metric of the service."""
        return self.parts.metrics.registry.get_sample_value(sample, labels) or 0.0


@contextmanager
def staged(directory: Path, *, budget_bytes: int = 64 << 20) -> Iterator[Stage]:
    """A stage whose service keeps its catalog in ``directory``; each tier has the budget."""
    clock = ManualClock()
    parts = make_parts(directory, clock, budget_bytes=budget_bytes)
    try:
        with live(parts) as served, Client(served.url, strict=True, budget_seconds=30) as client:
            yield Stage(clock, served, client)
    finally:
        parts.close()
