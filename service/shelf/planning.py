"""Answer a plan: survey what is there, ask the planner, hold what the answer and its fallback load."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvshelf_client.words import MissReason, Provenance
from service.leases.lease import Answer, Lease, PlanFacts, RequestKey
from service.namespaces import Namespace
from service.planner import Ran, check_request, fallback_plan, resume_plan, useful_snapshot_boundaries
from service.planner.accounts import hit_tokens_of
from service.planner.base import Cached, Layout, Load, Mode, Request, ResumePlan
from service.planner.candidates import highest_boundary
from service.shelf.missing import NEW_TEXT, UNUSED, Cause, Missing, why_blocks_end
from service.shelf.parts import Parts
from service.shelf.survey import (
    BlockSurvey,
    SnapshotSurvey,
    snapshot_ids,
    survey_blocks,
    survey_snapshots,
    worst_provenance,
)
from storage.base import Entry, Hold, Miss


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for a plan. ``keys`` are the block keys of all full blocks of the prompt, in order.

    ``owner`` is the tenant that asks, None where there are no tenants: the lease and the plans are its own.
    """

    namespace: Namespace
    request: Request
    keys: Sequence[bytes]
    request_id: str
    lease_ttl_seconds: float
    owner: str | None = None

    @property
    def request_key(self) -> RequestKey:
        """What the request is known by."""
        return self.owner, self.namespace.fingerprint, self.request_id


@dataclass(frozen=True, slots=True)
class Planned:
    """The answer. The reasons say what is missing: (tokens or boundary, why), or None where nothing is."""

    lease: Lease
    exact_hit_tokens: int
    global_reason: tuple[int, MissReason] | None
    snapshot_reason: tuple[int, MissReason] | None


def make_plan(parts: Parts, ask: Ask) -> Planned:
    """Plan a request and lease what it loads. The lease's id is also the request's handle until it is released.

    Raises:
        LeaseLimitError: too much is under lease, or would be if all that is there of the prompt were held.
        InvalidRequestError: the request contradicts itself.
    """
    check_request(ask.request)
    blocks = survey_blocks(
        parts,
        ask.namespace,
        ask.keys,
        ask.request,
        check_room=lambda records: parts.leases.check_room(ask.request_key, records),
    )
    try:
        return _plan_on(parts, ask, blocks)
    except BaseException:  # Whatever went wrong, nothing may stay pinned.
        blocks.release()
        raise


def _plan_on(parts: Parts, ask: Ask, blocks: BlockSurvey) -> Planned:
    layout, request = ask.namespace.layout, ask.request
    cached = Cached(blocks.global_tokens, blocks.exact_global_tokens)
    without = fallback_plan(layout, request, cached)
    snapshots = _survey_useful(parts, ask, cached)
    beyond = why_blocks_end(parts.fates, blocks.holds, blocks.global_tokens // layout.block_tokens - blocks.first_block)
    plan, held = _choose(parts, ask, cached, snapshots)
    uses_snapshot = held is not None
    lease = Lease(
        lease_id=parts.new_id(),
        request_id=ask.request_id,
        namespace=ask.namespace,
        primary=Answer(parts.new_id(), plan),
        fallback=Answer(parts.new_id(), without) if uses_snapshot else None,
        hit_tokens=hit_tokens_of(layout, plan, blocks.global_tokens),
        ttl_seconds=ask.lease_ttl_seconds,
        keys=ask.keys[
            : max(plan.matched_tokens, without.matched_tokens if uses_snapshot else 0) // layout.block_tokens
        ],
        blocks=blocks.holds,
        first_block=blocks.first_block,
        snapshot=held,
        owner=ask.owner,
        missing=Missing(
            highest_boundary(layout, request, request.prompt_tokens),
            highest_boundary(layout, request, blocks.global_tokens),
            beyond,
            _why_below(layout, snapshots),
        ),
    )
    _keep_what_is_loaded(lease)
    _publish(parts, lease, ask.request)
    return Planned(
        lease,
        hit_tokens_of(layout, plan, blocks.exact_global_tokens) if layout.block_bytes or plan.exact else 0,
        (blocks.global_tokens, blocks.reason) if blocks.reason else None,
        None if plan.mode in (Mode.SNAPSHOT, Mode.RESIDENT) else snapshots.missing,
    )


def _why_below(layout: Layout, snapshots: SnapshotSurvey) -> Cause:
    """Why tokens are run whose blocks are there. Where nothing but snapshots is stored, text without one is new."""
    if snapshots.cause is None:
        return UNUSED
    return NEW_TEXT if snapshots.cause == "never_stored" and not layout.block_bytes else ("snapshot", snapshots.cause)


def _survey_useful(parts: Parts, ask: Ask, cached: Cached) -> SnapshotSurvey:
    """Look only at the boundaries where a snapshot could beat the best plan without one."""
    layout, request = ask.namespace.layout, ask.request
    return survey_snapshots(
        parts,
        ask.namespace,
        ask.keys,
        useful_snapshot_boundaries(layout, request, cached),
        exact_only=not request.allow_approximate,
        every=request.max_load_bytes_per_saved_token is not None,
    )


def _choose(parts: Parts, ask: Ask, cached: Cached, snapshots: SnapshotSurvey) -> tuple[ResumePlan, Hold | None]:
    """The best plan whose snapshot could be held. One that was lost since it was seen is struck off, and so on."""
    found = list(snapshots.found)
    while True:
        plan = resume_plan(ask.namespace.layout, ask.request, replace(cached, snapshots=tuple(found)))
        boundary = plan.load.snapshot_boundary
        if boundary is None:
            return plan, None
        hold = parts.snapshots.hold(snapshot_ids(ask.namespace, ask.keys, boundary))
        lost = next((entry for entry in hold.entries if isinstance(entry, Miss)), None)
        if lost is None and (not plan.exact or worst_provenance(hold.entries) is Provenance.EXACT):
            return plan, hold
        hold.release()
        found = [snapshot for snapshot in found if snapshot.boundary_tokens != boundary]
        if lost is not None:
            snapshots.lacks(boundary, parts.fates, hold.entries)


def _keep_what_is_loaded(lease: Lease) -> None:
    """Narrow the holds to what the plan and its fallback load together."""
    tokens = lease.namespace.layout.block_tokens
    loads = [answer.plan.load for answer in lease.answers]
    ranges = [(load.global_start // tokens, load.global_end // tokens) for load in loads if _loads_blocks(load)]
    if not ranges:
        for hold in lease.blocks:
            hold.release()
        lease.blocks = ()
        return
    start, end = min(first for first, _ in ranges), max(last for _, last in ranges)
    for hold in lease.blocks:
        hold.keep(start - lease.first_block, end - lease.first_block)
    lease.first_block = start


def _loads_blocks(load: Load) -> bool:
    return load.global_end > load.global_start


def _publish(parts: Parts, lease: Lease, request: Request) -> None:
    """Enter the lease and the plans' facts, and count them.

    Once it is entered, another plan of the same request may take its place at any time and empty it.
    """
    ages = _ages(parts, lease)
    try:
        parts.leases.add(lease)
    except BaseException:  # The lease was not taken in, so its snapshot is still this call's to let go.
        lease.let_go()
        raise
    for answer in lease.answers:
        parts.plans.put(
            (lease.owner, answer.plan_id), PlanFacts(lease.namespace.fingerprint, Ran.of(answer.plan, request))
        )
    plan = lease.primary.plan
    parts.metrics.plans.labels(plan.mode.value, str(plan.exact).lower()).inc()
    for tier, seconds in ages:
        parts.metrics.age_at_hit.labels(tier).observe(seconds)


def _ages(parts: Parts, lease: Lease) -> list[tuple[str, float]]:
    """The age of the deepest record of each tier that the plan loads stands for the whole prefix."""
    deepest: list[tuple[str, Entry | Miss]] = []
    if lease.blocks and _loads_blocks(lease.primary.plan.load):
        last = lease.primary.plan.load.global_end // lease.namespace.layout.block_tokens - 1
        deepest.append(("ssd", lease.blocks[0].entries[last - lease.first_block]))
    if lease.snapshot is not None:
        deepest.append(("dram", lease.snapshot.entries[0]))
    now = parts.clock.now()
    return [(tier, max(0.0, now - entry.last_used_at)) for tier, entry in deepest if isinstance(entry, Entry)]
