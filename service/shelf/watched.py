"""Shelves as an operator sees them: what each holds, and what it had to give up or refuse for want of room."""

from collections.abc import Mapping
from typing import NamedTuple

from storage.base import Tier, TierObserver


class ShelfState(NamedTuple):
    """One shelf of a tier. ``tenant`` is empty for the one that all share who have none of their own.

    ``evicted_records`` and ``refused_records`` are since the start: those that went for others, and those for which no
    room was made. ``filled_bytes`` leaves out of ``used_bytes`` what is taken on the medium and holds nothing yet.
    ``retention_seconds`` is None while nothing was forced out.
    """

    tier: str
    tenant: str
    records: int
    used_bytes: int
    filled_bytes: int
    budget_bytes: int
    evicted_records: int = 0
    refused_records: int = 0
    retention_seconds: float | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from other shelves."""
        return self.tier, self.tenant


class ShelfWatch:
    """An observer of one shelf, before the one of all: counts what the shelf gave up and refused.

    What is told of every record goes straight to the other one.
    """

    def __init__(self, observer: TierObserver) -> None:
        self._observer = observer
        self.evicted_records = 0
        self.refused_records = 0
        self.moved = observer.moved
        self.age_at_expiry = observer.age_at_expiry
        self.noticed = observer.noticed

    def evicted(self, tier: str, cause: str, records: int, payload_bytes: int) -> None:
        """See :meth:`TierObserver.evicted`. A tier calls this under its lock, so counting is safe."""
        if cause == "budget":
            self.evicted_records += records
        self._observer.evicted(tier, cause, records, payload_bytes)

    def fault(self, tier: str, kind: str) -> None:
        """See :meth:`TierObserver.fault`. Two refusals at one moment may count as one."""
        if kind == "full":
            self.refused_records += 1
        self._observer.fault(tier, kind)


class WatchedShelf(NamedTuple):
    """A shelf with its observer."""

    tenant: str
    tier: Tier
    watch: ShelfWatch

    def state(self, retention_seconds: float | None = None) -> ShelfState:
        """How it is now. Blocks as a scrape does."""
        usage = self.tier.usage()
        return ShelfState(
            self.tier.name,
            self.tenant,
            usage.records,
            usage.used_bytes,
            usage.filled_bytes,
            usage.budget_bytes,
            self.watch.evicted_records,
            self.watch.refused_records,
            retention_seconds,
        )


def quota_states(pool: Tier, budgets: Mapping[str, int]) -> list[ShelfState]:
    """What tenants with a budget of their own have of a server that all share; what they gave up is not told apart."""
    owners = pool.usage().owners
    return [
        ShelfState(pool.name, tenant, 0, owners.get(tenant, 0), owners.get(tenant, 0), budget_bytes)
        for tenant, budget_bytes in budgets.items()
        if tenant
    ]
