"""How the service is: its health with causes, its statistics, and the gauges that are read at a scrape."""

import os
from contextlib import suppress
from dataclasses import dataclass

from service.access import ANYBODY, Principal
from service.metrics import labels
from service.shelf.parts import Parts


@dataclass(frozen=True, slots=True)
class Health:
    """``ok``, ``degraded`` (it answers, but serves less than it could) or ``down``, and why."""

    status: str
    causes: tuple[str, ...]


def health(parts: Parts) -> Health:
    """The service's health as its tiers last saw themselves. Never blocks."""
    causes = []
    for tier, is_down in (
        (parts.blocks, "the SSD tier does not serve: global KV is a miss, and every plan is cold"),
        (parts.snapshots, "the DRAM pool does not serve: snapshots are misses, and plans replay or rebuild"),
    ):
        if not tier.is_up():
            causes.append(is_down)
        trouble = tier.trouble()
        if trouble is not None:
            causes.append(trouble)
    if (trouble := parts.access.trouble()) is not None:
        causes.append(trouble)
    if parts.keys is not None and (trouble := parts.keys.trouble()) is not None:
        causes.append(trouble)
    return Health("degraded" if causes else "ok", tuple(causes))


def statistics(parts: Parts, principal: Principal) -> dict[str, object]:
    """What ``/v1/stats`` answers: of the whole service for its operator, of what is its own for a tenant."""
    return _of_service(parts) if principal.is_operator else _of_tenant(parts, principal)


def _of_tenant(parts: Parts, principal: Principal) -> dict[str, object]:
    """Nothing that the doings of others change."""
    tenant, tiers = principal.tenant or "", (parts.blocks, parts.snapshots)
    return {
        "tenant": tenant,
        "namespaces": len(parts.namespaces.list(principal)),
        "tiers": {tier.name: {"live_bytes": tier.usage().owners.get(tenant, 0)} for tier in tiers},
    }


def _of_service(parts: Parts) -> dict[str, object]:
    """Usage by tier, leases, plans remembered, health."""
    tiers: dict[str, object] = {}
    for tier in (parts.blocks, parts.snapshots):
        usage = tier.usage()
        tiers[tier.name] = {"up": tier.is_up(), "durable": tier.is_durable, **usage._asdict()}
    state = health(parts)
    return {
        "health": {"status": state.status, "causes": list(state.causes)},
        "namespaces": len(parts.namespaces.list(ANYBODY)),
        "tiers": tiers,
        "leases": {"count": len(parts.leases), "records": parts.leases.records},
        "plans_remembered": len(parts.plans),
        "breaker": parts.breaker_state(),
        "retention_reached_seconds": parts.retention_reached_seconds(),
    }


def refresh_gauges(parts: Parts) -> None:
    """Set the gauges of the metrics from the parts."""
    metrics = parts.metrics
    for tier in (parts.blocks, parts.snapshots):
        usage = tier.usage()
        metrics.records.labels(tier.name).set(usage.records)
        metrics.live_bytes.labels(tier.name).set(usage.live_bytes)
        metrics.used_bytes.labels(tier.name).set(usage.used_bytes)
        metrics.filled_bytes.labels(tier.name).set(usage.filled_bytes)
        metrics.budget_bytes.labels(tier.name).set(usage.budget_bytes)
        metrics.pinned_bytes.labels(tier.name).set(usage.pinned_bytes)
        metrics.expiry_lag.labels(tier.name).set(usage.expiry_lag_seconds)
        metrics.tier_up.labels(tier.name).set(tier.is_up())
    metrics.token_file_ok.set(parts.access.trouble() is None)
    metrics.ttl.labels("ssd").set(parts.settings.store.ttl_seconds)
    metrics.ttl.labels("dram").set(parts.settings.pool.ttl_seconds)
    with suppress(OSError):  # A file system that does not answer is told by its own metrics, and by the tier's faults.
        space = os.statvfs(parts.settings.store.data_dir)
        metrics.filesystem_size.set(space.f_blocks * space.f_frsize)
        metrics.filesystem_free.set(space.f_bavail * space.f_frsize)
    metrics.leases.set(len(parts.leases))
    metrics.leased_records.set(parts.leases.records)
    metrics.retention.set(parts.retention_reached_seconds())
    metrics.set_state(metrics.breaker, labels.BREAKER_STATES, parts.breaker_state())
    metrics.set_state(metrics.health, labels.HEALTH_STATES, health(parts).status)
