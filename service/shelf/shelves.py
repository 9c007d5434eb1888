"""Open the tiers: one shelf for all, and a shelf of its own for each tenant that has a budget."""

import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import structlog
from pydantic import SecretStr

from service.namespaces.namespace import NAMESPACE_ID_BYTES
from service.settings import SHARED_SHELF, Settings
from service.shelf.watched import ShelfState, ShelfWatch, WatchedShelf, quota_states
from storage.base import Tier, TierObserver
from storage.breaker import BreakerTier
from storage.clock import Clock
from storage.memory import MemoryTier
from storage.routed import RoutedTier
from storage.ssd import SsdTier, WhenFull

_LOG = structlog.get_logger("kvshelf.shelves")


class Shelves:
    """Opens the tiers of a service.

    Args:
        settings: budgets, by shelf.
        tenant_of: the tenant of a namespace's id, None where there is none.
        seal: puts what seals records, where that is asked for, before a tier.
        closing: closes what was opened.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        observer: TierObserver,
        tenant_of: Callable[[bytes], str | None],
        seal: Callable[[Tier], Tier],
        closing: ExitStack,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._observer = observer
        self._tenant_of = tenant_of
        self._seal = seal
        self._closing = closing
        self._blocks: list[SsdTier] = []
        self._watched: list[WatchedShelf] = []
        self._quotas: Mapping[str, int] = {}

    @property
    def retention_seconds(self) -> float | None:
        """The least of what the SSD shelves reached under force; None while none was forced."""
        reached = [shelf.retention_seconds for shelf in self._blocks if shelf.retention_seconds is not None]
        return min(reached, default=None)

    def states(self) -> list[ShelfState]:
        """Every shelf as it is now. Blocks as a scrape does."""
        states = []
        for shelf in self._watched:
            retention = shelf.tier.retention_seconds if isinstance(shelf.tier, SsdTier) else None
            states.append(shelf.state(retention))
            if shelf.tier.name == "dram":
                states += quota_states(shelf.tier, self._quotas)
        return states

    def open_blocks(self) -> Tier:
        """The SSD tier, or the shared one that stands in for it. Raises as :class:`SsdTier`."""
        store = self._settings.store
        if store.redis_url is not None:
            shared = self._open_redis(store.redis_url, "ssd", ttl_seconds=store.ttl_seconds, prefix=store.key_prefix)
            self._closing.callback(shared.close)
            return shared
        budgets = self._settings.store_budgets()
        tenants = store.data_dir / "tenants"
        directories = {shelf: tenants / directory_name(shelf) if shelf else store.data_dir for shelf in budgets}
        _tell_of_unused(tenants, {path.name for path in directories.values()})
        shelves: dict[str, Tier] = {}
        for shelf, budget_bytes in budgets.items():
            directories[shelf].mkdir(mode=0o700, parents=True, exist_ok=True)
            watch = ShelfWatch(self._observer)
            tier = SsdTier(
                directories[shelf],
                clock=self._clock,
                observer=watch,
                ttl_seconds=store.ttl_seconds,
                budget_bytes=budget_bytes,
                when_full=WhenFull(store.when_full),
                memory_bytes=store.memory_bytes * budget_bytes // store.budget_bytes,
            )
            self._closing.callback(tier.close)
            self._blocks.append(tier)
            self._watched.append(WatchedShelf(shelf, tier, watch))
            shelves[shelf] = tier
        return self._seal(self._routed(shelves))

    def open_pool(self) -> BreakerTier:
        """The DRAM pool: a Redis when one is named, else memory of this process; a breaker before either."""
        pool = self._settings.pool
        if pool.redis_url is None:
            opened = BreakerTier(self._seal(self._open_memory()), self._clock, jitter=_jitter)
        else:
            budgets = self._settings.pool_budgets()
            opened = self._open_redis(
                pool.redis_url,
                "dram",
                ttl_seconds=pool.ttl_seconds,
                prefix=pool.key_prefix,
                budgets=budgets if len(budgets) > 1 else None,
            )
        self._closing.callback(opened.close)
        return opened

    def _open_memory(self) -> Tier:
        shelves: dict[str, Tier] = {}
        for shelf, budget_bytes in self._settings.pool_budgets().items():
            watch = ShelfWatch(self._observer)
            shelves[shelf] = MemoryTier(
                clock=self._clock,
                observer=watch,
                ttl_seconds=self._settings.pool.ttl_seconds,
                budget_bytes=budget_bytes,
            )
            self._watched.append(WatchedShelf(shelf, shelves[shelf], watch))
        return self._routed(shelves)

    def _open_redis(
        self, secret: SecretStr, name: str, *, ttl_seconds: float, prefix: str, budgets: Mapping[str, int] | None = None
    ) -> BreakerTier:
        """Records behind whatever speaks Redis at a URL, with a breaker before it."""
        from storage.dram import RedisTier  # takes a while, and is not used by a service with a pool of its own
        from storage.dram.place import PoolKind, pool_place

        url = secret.get_secret_value()
        watch = ShelfWatch(self._observer)
        tier = RedisTier(
            url=url,
            clock=self._clock,
            observer=watch,
            name=name,
            ttl_seconds=ttl_seconds,
            prefix=prefix,
            timeout_seconds=self._settings.pool.timeout_seconds,
            budgets=budgets,
            jitter=_jitter,
        )
        in_part = pool_place(url).kind is PoolKind.CLUSTER
        opened = BreakerTier(self._seal(tier), self._clock, jitter=_jitter, serves_in_part=in_part)
        self._watched.append(WatchedShelf(SHARED_SHELF, opened, watch))
        self._quotas = {**self._quotas, **(budgets or {})}
        return opened

    def _routed(self, shelves: dict[str, Tier]) -> Tier:
        """One shelf as it is; several behind a router."""
        if len(shelves) == 1:
            return shelves[SHARED_SHELF]

        def shelf_of(namespace_id: bytes) -> str:
            tenant = self._tenant_of(namespace_id)
            return tenant if tenant in shelves else SHARED_SHELF

        return RoutedTier(shelves, shelf_of, prefix_bytes=NAMESPACE_ID_BYTES)


def directory_name(tenant: str) -> str:
    """The name of a tenant's directory: readable, and no other tenant's. Tenants may be written in any letters."""
    readable = re.sub(r"[^A-Za-z0-9-]+", "-", tenant)[:32]
    return f"{readable}.{hashlib.sha256(tenant.encode()).hexdigest()[:16]}"


def _tell_of_unused(tenants: Path, used: set[str]) -> None:
    """Shelves of tenants that have no budget any more take space until somebody removes them."""
    for path in tenants.iterdir() if tenants.is_dir() else ():
        if path.name not in used:
            _LOG.warning("tenant_shelf_unused", path=str(path))


def _jitter() -> float:
    """A number in [0, 1), so that many services do not probe a recovering Redis at one moment."""
    return secrets.randbelow(1 << 20) / (1 << 20)
