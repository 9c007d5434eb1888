"""A sweep as a picture: one self-contained SVG, no script, no font, nothing to fetch."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from service.cli.tables import size
from service.replay.tally import MODES
from service.simulate.result import SimulationResult
from service.simulate.sweep import Step

_COLOURS = {
    "full_attention": "#99bbdd",
    "resident": "#bbeeff",
    "snapshot": "#88cc88",
    "bounded_replay": "#eedd77",
    "exact_rebuild": "#ee9999",
    "cold": "#cccccc",
    "replay": "#eedd77",
    "prefill": "#ddaacc",
    "dram": "#aaddee",
    "ssd": "#ddbb99",
}
_WIDTH, _LEFT, _RIGHT, _ROW, _BAR, _LEAST_LABELLED = 760, 110, 90, 26, 18, 40
_TEXT = 'font-family="sans-serif" font-size="12"'


class _Panel(NamedTuple):
    """A bar a value, each cut into named parts; ``show`` writes a figure."""

    heading: str
    rows: Sequence[Mapping[str, float]]
    show: Callable[[float], str]


def sweep_svg(title: str, option: str, steps: Sequence[Step]) -> str:
    """How requests resumed, what the engine ran, and what the shelves took, for each value."""
    results = [step.result for step in steps]
    panels = [
        _Panel("How requests resumed, of all requests", [_resumes(one) for one in results], _percent),
        _Panel("What the engine ran, of all prompt tokens", [_run_tokens(one) for one in results], _percent),
        _Panel("Most in the DRAM pool", [{"dram": one.peak_dram_bytes} for one in results], size),
        _Panel("Most on SSD", [{"ssd": one.peak_ssd_bytes} for one in results], size),
    ]
    values = [step.value for step in steps]
    parts = [_label(10, 22, f"{title}, by {option}", bold=True)]
    top = 46
    for panel in panels:
        parts += _drawn(panel, top, values)
        top += _ROW * len(steps) + 50
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top}" viewBox="0 0 {_WIDTH} {top}" '
        f'role="img"><title>{escape(title)}</title>\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _resumes(result: SimulationResult) -> dict[str, float]:
    return {mode: result.resumes[mode] / max(1, result.requests) for mode in MODES if result.resumes[mode]}


def _run_tokens(result: SimulationResult) -> dict[str, float]:
    tokens = max(1, result.prompt_tokens)
    return {source: result.tokens_by_source[source] / tokens for source in ("replay", "prefill")}


def _percent(share: float) -> str:
    return f"{share:.2%}"


def _drawn(panel: _Panel, top: int, values: Sequence[str]) -> list[str]:
    """The panel, all bars to the scale of the longest, with the legend below where a bar has parts."""
    parts = [_label(10, top, panel.heading, bold=True)]
    longest = max(sum(row.values()) for row in panel.rows) or 1.0
    for number, (value, row) in enumerate(zip(values, panel.rows, strict=True)):
        y, x = top + 10 + number * _ROW, float(_LEFT)
        parts.append(_label(10, y + 13, value))
        for name, figure in row.items():
            width = figure / longest * (_WIDTH - _LEFT - _RIGHT)
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{_COLOURS[name]}">'
                f"<title>{escape(f'{value}: {name} {panel.show(figure)}')}</title></rect>"
            )
            if len(row) > 1 and width > _LEAST_LABELLED:
                parts.append(_label(x + 3, y + 13, panel.show(figure)))
            x += width
        parts.append(_label(x + 6, y + 13, panel.show(sum(row.values()))))
    names = dict.fromkeys(name for row in panel.rows for name in row)
    return parts + (_legend(top + 10 + len(values) * _ROW, names) if len(names) > 1 else [])


def _legend(y: int, names: Mapping[str, None]) -> list[str]:
    parts: list[str] = []
    x = _LEFT
    for name in names:
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{_COLOURS[name]}"/>')
        parts.append(_label(x + 16, y + 10, name))
        x += 40 + 7 * len(name)
    return parts


def _label(x: float, y: float, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y}" {_TEXT}{weight}>{escape(text)}</text>'
