"""A resume plan as a picture for people: the ranges of the prompt, to scale, and what the engine must do."""

from collections.abc import Iterator

from service.planner import tokens_by_source
from service.planner.base import Layout, Mode, ResumePlan, Source

_WIDTH = 76
_LOOKS = {
    Source.HBM: ("#", "held in the engine's HBM"),
    Source.DRAM: ("=", "skipped: no layer looks that far back"),
    Source.SSD: ("=", "loaded from SSD"),
    Source.REPLAY: ("~", "run again to rebuild the state"),
    Source.PREFILL: (".", "run for the first time"),
}
_MODES = {
    Mode.FULL_ATTENTION: "go on after the cached KV",
    Mode.RESIDENT: "go on in what the engine holds",
    Mode.SNAPSHOT: "go on at a snapshot",
    Mode.BOUNDED_REPLAY: "replay one window",
    Mode.EXACT_REBUILD: "rebuild the state exactly",
    Mode.COLD: "prefill everything",
}


def resume_text(plan: ResumePlan, fallback: ResumePlan, layout: Layout) -> str:
    """The whole picture, several lines.

    Args:
        plan: what to show.
        fallback: the plan without a snapshot; mentioned where ``plan`` needs one.
        layout: that of both.
    """
    ranges = list(_ranges(plan, layout))
    lines = [_verdict(plan), "", _bar(ranges, plan.prompt_tokens), ""]
    lines += [_range_line(*part) for part in ranges]
    lines += ["", "The engine", *(f"  {step}" for step in _steps(plan, layout))]
    if plan.mode is Mode.SNAPSHOT:
        lines += ["", f"Should the snapshot be gone by then: {_verdict(fallback)}"]
    return "\n".join(lines)


def _verdict(plan: ResumePlan) -> str:
    share = plan.saved_tokens / plan.prompt_tokens
    return (
        f"{plan.mode} ({'exact' if plan.exact else 'approximate'}): {_MODES[plan.mode]}, "
        f"run {plan.prompt_tokens - plan.run_start:,} of {plan.prompt_tokens:,} tokens, {share:.1%} saved"
    )


def _ranges(plan: ResumePlan, layout: Layout) -> Iterator[tuple[Source, int, int]]:
    """The prompt cut by source: source, start and end of each range that is not empty."""
    start = 0
    for source, tokens in tokens_by_source(plan, layout).items():
        if tokens:
            yield source, start, start + tokens
        start += tokens


def _bar(ranges: list[tuple[Source, int, int]], prompt_tokens: int) -> str:
    """The ranges to scale between two bars, each at least one character wide."""
    widths = [max(1, round(_WIDTH * (end - start) / prompt_tokens)) for _, start, end in ranges]
    widths[widths.index(max(widths))] += _WIDTH - sum(widths)
    marks = (_LOOKS[source][0] * width for (source, _, _), width in zip(ranges, widths, strict=True))
    return f"  |{''.join(marks)}|"


def _range_line(source: Source, start: int, end: int) -> str:
    mark, meaning = _LOOKS[source]
    noun = "token" if end - start == 1 else "tokens"
    return f"  {mark * 3}  {source:<8}{_span(start, end):<26}{end - start:>13,} {noun:<6}  {meaning}"


def _steps(plan: ResumePlan, layout: Layout) -> Iterator[str]:
    load = plan.load
    if load.global_start < load.global_end:
        yield f"loads the blocks of {_span(load.global_start, load.global_end)}, {_size(load.ssd_bytes)} from SSD"
    if load.snapshot_boundary is not None:
        yield f"loads the snapshot at {load.snapshot_boundary:,}, {_size(load.dram_bytes)} from the DRAM pool"
    if not load.total_bytes:
        yield "loads nothing"
    yield f"runs {_span(plan.run_start, plan.prompt_tokens)}"
    if plan.decoder_run_start < plan.prompt_tokens:
        yield f"runs its decoder on {_span(plan.decoder_run_start, plan.prompt_tokens)}"
    if plan.replayed_tokens and layout.block_bytes:
        yield f"writes no global KV below {plan.write_floor:,}: what is run again there builds state only"
    if not plan.exact:
        yield "must not pass off what it makes as exact: the plan's id tells the service"


def _span(start: int, end: int) -> str:
    return f"[{start:,}, {end:,})"


def _size(count: int) -> str:
    """Bytes in decimal units, three digits."""
    size, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while size >= 999.5 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}"
