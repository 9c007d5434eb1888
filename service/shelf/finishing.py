"""End a request: count its tokens once, and renew the life of what it used."""

from collections.abc import Collection

from service.leases.lease import Lease, RanPlan
from service.planner import request_for, resume_plan, tokens_by_source
from service.planner.base import Cached, Layout, ResumePlan
from service.shelf.missing import UNUSED
from service.shelf.parts import Parts


def finish(parts: Parts, owner: str | None, lease_id: str, ran: RanPlan) -> tuple[Layout, ResumePlan]:
    """Release a lease of ``owner`` and account for its request by the plan that ran; returns that plan and its layout.

    Raises:
        UnknownLeaseError: see there.
    """
    lease = parts.leases.release(owner, lease_id)
    return lease.namespace.layout, _account(parts, lease, ran)


def expire_leases(parts: Parts) -> int:
    """End the leases whose time is over, as if each had run the plan in force; returns how many those were."""
    over = parts.leases.expire()
    for lease in over:
        _account(parts, lease, RanPlan.PLAN)
    return len(over)


def end_leases(parts: Parts, namespace_ids: Collection[bytes]) -> int:
    """End every lease of these namespaces, as if each had run the plan in force; returns how many those were."""
    ended = parts.leases.release_of(namespace_ids)
    for lease in ended:
        _account(parts, lease, RanPlan.PLAN)
    return len(ended)


def finish_all(parts: Parts) -> None:
    """End every lease, as at a stop."""
    for lease in parts.leases.release_all():
        _account(parts, lease, RanPlan.PLAN)


def _account(parts: Parts, lease: Lease, ran: RanPlan) -> ResumePlan:
    plan = _plan_that_ran(lease, ran)
    _renew(parts, lease, plan)
    if not parts.finished.put_if_absent(lease.request_key, None):
        return plan
    layout, metrics = lease.namespace.layout, parts.metrics
    for source, tokens in tokens_by_source(plan, layout).items():
        metrics.prompt_tokens.labels(source.value).inc(tokens)
    metrics.requests.inc()
    metrics.hit_tokens.inc(lease.hit_tokens)
    metrics.replayed_tokens.inc(plan.replayed_tokens)
    metrics.saved_tokens.inc(plan.saved_tokens)
    _count_missed(parts, lease, plan)
    metrics.resumes.labels(plan.mode.value, str(plan.exact).lower()).inc()
    return plan


def _count_missed(parts: Parts, lease: Lease, ran: ResumePlan) -> None:
    if lease.missing is None:
        return
    why_less = ("snapshot", lease.why_lost.value) if lease.why_lost else UNUSED
    for cause, tokens in lease.missing.tokens(lease.primary.plan, ran, why_less).items():
        if tokens:
            parts.metrics.missed_tokens.labels(*cause).inc(tokens)


def _plan_that_ran(lease: Lease, ran: RanPlan) -> ResumePlan:
    if ran is RanPlan.COLD:
        layout = lease.namespace.layout
        return resume_plan(layout, request_for(layout, lease.primary.plan.prompt_tokens, supports=()), Cached(0, 0))
    if ran is RanPlan.FALLBACK and lease.fallback is not None:
        return lease.fallback.plan
    return lease.current.plan


def _renew(parts: Parts, lease: Lease, plan: ResumePlan) -> None:
    """Renew the used blocks, those the engine had in HBM too: once its copy goes, the stored one is next in use."""
    if not lease.namespace.layout.block_bytes:
        return
    used = lease.keys[: plan.matched_tokens // lease.namespace.layout.block_tokens]
    for shard in range(lease.namespace.shards):
        parts.blocks.touch(lease.namespace.record_ids(used, shard))
