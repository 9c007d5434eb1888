"""A whole service for tests that need no disk or Redis: the real verbs over in-process tiers, on a manual clock."""

import itertools
from collections.abc import Callable
from pathlib import Path

from service.access import ANYBODY, Access, UnguardedAccess
from service.erasure.book import MAX_ERASURES, ErasureBook
from service.metrics import Metrics
from service.namespaces import Namespace, NamespaceRegistry, NamespaceSpec
from service.profiles import get_profile
from service.scrub.scrubber import Scrubber
from service.settings import Settings, load_settings
from service.shelf.assemble import assemble
from service.shelf.finishing import finish_all
from service.shelf.parts import Parts
from service.shelf.watched import ShelfWatch, WatchedShelf
from storage.base import Tier
from storage.breaker import BreakerTier
from storage.catalog import Catalog
from storage.clock import ManualClock
from storage.memory import MemoryTier

V41 = "deepseek-v4.1-flash/fp4"


def counting_ids() -> Callable[[], str]:
    """Ids that are the same in every run."""
    numbers = itertools.count(1)
    return lambda: f"id-{next(numbers):06d}"


def make_parts(
    directory: Path,
    clock: ManualClock,
    *,
    settings: Settings | None = None,
    blocks: Tier | None = None,
    snapshots: Tier | None = None,
    make_id: Callable[[], str] | None = None,
    access: Access | None = None,
    budget_bytes: int = 64 << 20,
) -> Parts:
    """A service over the given tiers; in-process ones of ``budget_bytes`` each where none are given."""
    settings = settings or load_settings(environment={})
    metrics = Metrics("test")
    of_blocks, of_pool = ShelfWatch(metrics), ShelfWatch(metrics)
    if blocks is None:
        blocks = MemoryTier(
            clock=clock,
            observer=of_blocks,
            ttl_seconds=settings.store.ttl_seconds,
            budget_bytes=budget_bytes,
            name="ssd",
        )
    if snapshots is None:
        snapshots = MemoryTier(
            clock=clock,
            observer=of_pool,
            ttl_seconds=settings.pool.ttl_seconds,
            budget_bytes=budget_bytes,
            name="dram",
        )
    tiers = (blocks, snapshots)

    def close() -> None:
        finish_all(parts)
        for tier in tiers:
            tier.close()

    parts = assemble(
        settings,
        clock,
        make_id or counting_ids(),
        metrics=metrics,
        access=access or UnguardedAccess(),
        namespaces=NamespaceRegistry(
            Catalog(directory / "namespaces", max_documents=1000),
            max_namespaces=settings.limits.max_namespaces,
            max_block_bytes=lambda _: 64 << 20,
            max_snapshot_bytes=settings.limits.max_snapshot_bytes,
            shared=settings.access.shared,
        ),
        blocks=blocks,
        snapshots=BreakerTier(snapshots, clock, jitter=lambda: 0.0),
        retention_reached_seconds=lambda: None,
        shelf_states=lambda: [
            WatchedShelf("", blocks, of_blocks).state(),
            WatchedShelf("", snapshots, of_pool).state(),
        ],
        close=close,
        scrubber=Scrubber(blocks, clock, settings.scrub, metrics, Catalog(directory / "scrub", max_documents=1)),
        erasures=ErasureBook(Catalog(directory / "erasures", max_documents=MAX_ERASURES)),
    )
    return parts


def register(
    parts: Parts, name: str = "test", *, block_tokens: int = 128, shards: int = 1, profile: str = V41
) -> Namespace:
    """A namespace of a miniature profile: one global byte a token."""
    spec = NamespaceSpec(
        tenant="test",
        model=profile,
        weights_revision="1",
        profile=get_profile(profile).miniature(1),
        block_tokens=block_tokens,
        shards=shards,
    )
    namespace, _ = parts.namespaces.register(ANYBODY, name, spec)
    return namespace
