"""What a simulation came to, as tables and bars for a person."""

from collections.abc import Sequence

from service.cli.tables import share, size, table
from service.replay.tally import MODES
from service.simulate.result import SimulationResult
from service.simulate.sweep import Step

_BAR_WIDTH = 50
_BAR_MARKS = {
    "full_attention": "F",
    "resident": "R",
    "snapshot": "#",
    "bounded_replay": "+",
    "exact_rebuild": "=",
    "cold": ".",
}


def describe(result: SimulationResult) -> str:
    """All tables, an empty line between them."""
    return "\n\n".join([_tokens(result), _resumes(result), _bytes(result)])


def describe_sweep(option: str, steps: Sequence[Step]) -> str:
    """A row and a bar a value."""
    modes = [mode for mode in MODES if any(step.result.resumes[mode] for step in steps)]
    header = [option, "hit", *modes, "run tokens", "replayed", "written/day", "peak ssd", "peak dram", "evicted"]
    return f"{table(header, [_row(step, modes) for step in steps])}\n\n{_bars(steps, modes)}"


def _row(step: Step, modes: Sequence[str]) -> list[str]:
    result = step.result
    return [
        step.value,
        share(result.hit_tokens, result.prompt_tokens),
        *(share(result.resumes[mode], result.requests) for mode in modes),
        share(result.run_tokens, result.prompt_tokens),
        share(result.replayed_tokens, result.prompt_tokens),
        size(result.written_bytes_per_day),
        size(result.peak_ssd_bytes),
        size(result.peak_dram_bytes),
        size(result.evicted_ssd_bytes + result.evicted_dram_bytes),
    ]


def _bars(steps: Sequence[Step], modes: Sequence[str]) -> str:
    """How requests resumed, as one bar a value whose parts add up to all of its width."""
    width = max(len(step.value) for step in steps)
    lines = []
    for value, result in steps:
        ends = [0]
        for mode in modes:
            ends.append(ends[-1] + result.resumes[mode])
        places = [round(end / max(1, result.requests) * _BAR_WIDTH) for end in ends]
        parts = (_BAR_MARKS[mode] * (places[n + 1] - places[n]) for n, mode in enumerate(modes))
        lines.append(f"{value.ljust(width)}  |{''.join(parts)}|")
    legend = ", ".join(f"{_BAR_MARKS[mode]} {mode}" for mode in modes)
    return "\n".join([*lines, f"share of requests: {legend}"])


def _tokens(result: SimulationResult) -> str:
    rows = [
        ("prompt", result.prompt_tokens),
        ("hit (stored prefix)", result.hit_tokens),
        ("hit, exact only", result.exact_hit_tokens),
        ("matched (used by the plan)", result.matched_tokens),
        ("saved", result.saved_tokens),
        ("run", result.run_tokens),
        *((f"  {source}", result.tokens_by_source[source]) for source in ("replay", "prefill")),
    ]
    return table(
        ("tokens", "count", "of prompt"),
        [(name, f"{tokens:,}", share(tokens, result.prompt_tokens)) for name, tokens in rows],
    )


def _resumes(result: SimulationResult) -> str:
    rows = [(mode, count) for mode, count in result.resumes.items() if count]
    rows.append(("(exact)", result.exact_resumes))
    return table(
        ("resumes by mode", "requests", "share"),
        [(name, f"{count:,}", share(count, result.requests)) for name, count in rows],
    )


def _bytes(result: SimulationResult) -> str:
    rows = [
        ("stored", result.stored_bytes),
        ("loaded", result.loaded_bytes),
        ("written to disk", result.written_bytes),
        ("  of that carried forward", result.carried_bytes),
        ("written to disk a day", result.written_bytes_per_day),
        ("peak on disk", result.peak_ssd_bytes),
        ("peak in the pool", result.peak_dram_bytes),
        ("evicted from disk", result.evicted_ssd_bytes),
        ("evicted from the pool", result.evicted_dram_bytes),
        ("refused for want of room", result.refused_bytes),
    ]
    return table(("bytes", ""), [(name, size(count)) for name, count in rows])
