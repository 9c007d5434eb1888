"""The resume plan: the best of all candidates that the request allows. Pure functions of their arguments."""

from dataclasses import replace

from kvshelf_client.words import Provenance
from service.planner.base import Ability, Cached, Layout, Mode, Request, ResumePlan, Snapshot
from service.planner.candidates import candidates, highest_boundary
from service.planner.validate import counted

_NEEDED_ABILITY = {
    Mode.SNAPSHOT: Ability.SNAPSHOT,
    Mode.BOUNDED_REPLAY: Ability.BOUNDED_REPLAY,
    Mode.EXACT_REBUILD: Ability.EXACT_REBUILD,
}
_MODE_ORDER = {mode: place for place, mode in enumerate(Mode)}


def resume_plan(layout: Layout, request: Request, cached: Cached) -> ResumePlan:
    """The plan that runs the fewest tokens; the exact one of two that run as many, then the one that loads the least.

    Args:
        layout: the model's, at the namespace's block size.
        request: what the engine asks; :func:`~service.planner.request_for` applies the defaults.
        cached: what is there. It need not include what the engine holds, and may for a layout without global bytes
            say anything but the snapshots.

    Raises:
        InvalidRequestError: a value is out of range or contradicts another; the error names its field.
    """
    ways = candidates(layout, request, counted(layout, request, cached))
    return min((plan for plan in ways if _is_allowed(plan, request)), key=_rank)


def fallback_plan(layout: Layout, request: Request, cached: Cached) -> ResumePlan:
    """The best plan that uses no snapshot: what the engine does when the snapshot it was promised is gone.

    Raises:
        InvalidRequestError: as :func:`resume_plan`.
    """
    return resume_plan(layout, request, replace(cached, snapshots=()))


def useful_snapshot_boundaries(layout: Layout, request: Request, cached: Cached) -> range:
    """The boundaries at which a snapshot could make a better plan, ascending; looking elsewhere is wasted.

    Where the caller sets no limit on bytes, an exact snapshot at any of them makes a better plan, and of two that the
    engine may use the one at the higher boundary does.

    Args:
        layout: as for :func:`resume_plan`.
        request: as for :func:`resume_plan`.
        cached: as for :func:`resume_plan`; its snapshots are ignored.

    Raises:
        InvalidRequestError: as :func:`resume_plan`.
    """
    best = fallback_plan(layout, request, cached)
    if not layout.state_layers or Ability.SNAPSHOT not in request.supports:
        return range(0)
    there = counted(layout, request, cached)
    usable = there.global_tokens if request.allow_approximate else there.exact_global_tokens
    top, block = highest_boundary(layout, request, usable), layout.block_tokens
    first = max(block, layout.floor_to_block(best.run_start + block - 1))
    if first <= top:
        # It may save no more than the best plan does. Whether it wins the tie is for the plan's own rules to say.
        hoped_for = replace(cached, snapshots=(Snapshot(first, Provenance.EXACT),))
        if resume_plan(layout, request, hoped_for).mode is not Mode.SNAPSHOT:
            first += block
    return range(first, top + 1, block)


def _is_allowed(plan: ResumePlan, request: Request) -> bool:
    """Whether the engine can do it, accepts it, and finds it worth its bytes."""
    needed, limit = _NEEDED_ABILITY.get(plan.mode), request.max_load_bytes_per_saved_token
    if needed is not None and needed not in request.supports:
        return False
    if not plan.exact and not request.allow_approximate:
        return False
    return limit is None or not plan.saved_tokens or plan.load.total_bytes / plan.saved_tokens <= limit


def _rank(plan: ResumePlan) -> tuple[int, bool, int, int, int]:
    """Smaller is better. What saves nothing is cold and loads nothing, so a full tie is one of the order of modes."""
    return (-plan.run_start, not plan.exact, plan.load.total_bytes, plan.matched_tokens, _MODE_ORDER[plan.mode])
