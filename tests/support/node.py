"""A whole service in this process on a manual clock, with tiers of its settings, and engines that use it."""

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kvshelf_client.frames import FrameHeader, FrameKind, checksum_of
from kvshelf_client.words import Provenance
from service.access import ANYBODY
from service.leases.lease import RanPlan
from service.namespaces import Namespace, NamespaceSpec
from service.overview.document import overview
from service.overview.history import INTERVAL_SECONDS, History
from service.planner import request_for
from service.profiles import get_profile
from service.settings import load_settings
from service.shelf.assemble import open_service
from service.shelf.fetching import open_fetch
from service.shelf.finishing import finish
from service.shelf.planning import Ask, Planned, make_plan
from service.shelf.storing import Upload, ran_plan, store
from service.shelf.upkeep import upkeep_step
from storage.clock import ManualClock
from tests.support.service import V41

BLOCK = 128


class Node:
    """A service with the given settings, as ``pool={"budget_bytes": ...}``, and a namespace of 8 KiB blocks."""

    def __init__(self, directory: Path, **settings: dict[str, Any]) -> None:
        self.clock = ManualClock()
        flags = {**settings, "store": {"data_dir": directory / "data"} | settings.get("store", {})}
        self.parts = open_service(load_settings(flags=flags, environment={}), self.clock)
        self.history = History(self.parts)
        self.history.step()
        self.namespace = self.register("test")
        self._requests = itertools.count()

    def register(self, tenant: str, *, is_full: bool = False) -> Namespace:
        """A namespace of a tenant; one of full size has snapshots of 1.3 MB."""
        profile = get_profile(V41) if is_full else get_profile(V41).miniature(64)
        spec = NamespaceSpec(tenant=tenant, model="m", weights_revision="1", profile=profile, block_tokens=BLOCK)
        return self.parts.namespaces.register(ANYBODY, f"of-{tenant}-{'full' if is_full else 'small'}", spec)[0]

    def wait(self, seconds: float) -> None:
        """Let time go by, with upkeep and samples."""
        for _ in range(max(1, round(seconds / INTERVAL_SECONDS))):
            self.clock.advance(min(seconds, INTERVAL_SECONDS))
            upkeep_step(self.parts)
            self.history.step()

    def plan(self, session: str, blocks: int, namespace: Namespace | None = None) -> Planned:
        """Ask for a plan of so many blocks of a session, and a bit more."""
        place = namespace or self.namespace
        asked = request_for(place.layout, (blocks + 1) * BLOCK)
        with self.parts.metrics.latency.labels("plan").time():
            name = f"request {next(self._requests)}"
            return make_plan(self.parts, Ask(place, asked, keys_of(session, blocks + 1), name, 60.0))

    def turn(
        self, session: str, blocks: int, *, skip: Iterable[int] = (), namespace: Namespace | None = None
    ) -> Planned:
        """One request of an engine: plan, fetch, run, store what was run but for the blocks to ``skip``, release."""
        place = namespace or self.namespace
        planned = self.plan(session, blocks, place)
        plan = planned.lease.primary
        for _ in open_fetch(self.parts, None, planned.lease.lease_id, None, lambda _: b"", fall_back=False).batches:
            pass
        kept, keys = set(skip), keys_of(session, blocks)
        frames = [
            _frame(FrameKind.BLOCK, keys[at], (at + 1) * BLOCK, place.shard_block_bytes)
            for at in range(plan.plan.write_floor // BLOCK, blocks)
            if at not in kept
        ]
        frames.append(_frame(FrameKind.SNAPSHOT, keys[-1], blocks * BLOCK, place.shard_snapshot_bytes))
        store(self.parts, Upload(place, ran_plan(self.parts, None, place, plan.plan_id), durable=False), frames)
        finish(self.parts, None, planned.lease.lease_id, RanPlan.PLAN)
        return planned

    def overview(self) -> dict[str, Any]:
        """What the page is told now."""
        return overview(self.parts, self.history, 0)

    def close(self) -> None:
        """Stop it."""
        self.parts.close()


def keys_of(session: str, blocks: int) -> Sequence[bytes]:
    """The block keys of a session."""
    return [hashlib.sha256(f"{session} {number}".encode()).digest() for number in range(blocks)]


def _frame(kind: FrameKind, key: bytes, end_tokens: int, size: int) -> tuple[FrameHeader, bytes]:
    payload = key[:1] * size
    return FrameHeader(kind, key, size, checksum_of(payload), Provenance.EXACT, 0, end_tokens), payload
