"""Accounts of a plan: where each prompt token comes from, and the plan as the JSON object of every face."""

from service.planner.base import Layout, ResumePlan, Source


def tokens_by_source(plan: ResumePlan, layout: Layout) -> dict[Source, int]:
    """How many of the prompt's tokens come from where; they add up to ``prompt_tokens``.

    What is neither held nor run was loaded from SSD. In a layout without global bytes the state alone, a matter of
    the DRAM pool, lets the engine skip tokens.
    """
    held = min(plan.held_tokens, plan.run_start)
    skipped = plan.run_start - held
    return {
        Source.HBM: held,
        Source.DRAM: 0 if layout.block_bytes else skipped,
        Source.SSD: skipped if layout.block_bytes else 0,
        Source.REPLAY: plan.replayed_tokens,
        Source.PREFILL: plan.prompt_tokens - plan.matched_tokens,
    }


def hit_tokens_of(layout: Layout, plan: ResumePlan, global_tokens: int) -> int:
    """What a trace analysis calls a hit: G uncapped; without global KV, the used snapshot's boundary."""
    return global_tokens if layout.block_bytes else plan.load.snapshot_boundary or 0


def plan_document(plan: ResumePlan) -> dict[str, object]:
    """The plan as a JSON object; token counts, half-open ranges and bytes, all as :class:`ResumePlan` has them."""
    load = plan.load
    return {
        "mode": plan.mode.value,
        "exact": plan.exact,
        "matched_tokens": plan.matched_tokens,
        "run_start": plan.run_start,
        "write_floor": plan.write_floor,
        "decoder_run_start": plan.decoder_run_start,
        "replayed_tokens": plan.replayed_tokens,
        "saved_tokens": plan.saved_tokens,
        "load": {"global": [load.global_start, load.global_end], "snapshot": load.snapshot_boundary},
        "load_bytes": {"ssd": load.ssd_bytes, "dram": load.dram_bytes},
    }
