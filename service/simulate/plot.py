"""A sweep as a picture: one self-contained SVG, no script, no font, nothing to fetch."""

from collections.abc import Mapping, Sequence
from html import escape

from service.replay.tally import MODES
from service.simulate.result import SimulationResult
from service.simulate.sweep import Step

_COLOURS = {
    "full_attention": "#4477aa",
    "resident": "#66ccee",
    "snapshot": "#228833",
    "bounded_replay": "#ccbb44",
    "exact_rebuild": "#ee6677",
    "cold": "#bbbbbb",
    "replay": "#ccbb44",
    "prefill": "#aa3377",
}
_WIDTH, _LEFT, _ROW, _BAR, _LABELLED = 760, 110, 26, 18, 0.04
_TEXT = 'font-family="sans-serif" font-size="12"'


def sweep_svg(title: str, option: str, steps: Sequence[Step]) -> str:
    """The shares of the resume modes, and of the prompt tokens that the engine ran, for each value."""
    panels = [
        ("How requests resumed (share of requests)", [_resumes(step.result) for step in steps]),
        ("Tokens the engine ran (share of prompt tokens)", [_run_tokens(step.result) for step in steps]),
    ]
    parts = [_label(10, 22, title, bold=True)]
    top = 46
    for heading, rows in panels:
        parts += _panel(top, heading, option, [step.value for step in steps], rows)
        top += _ROW * len(steps) + 70
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


def _panel(
    top: int, heading: str, option: str, values: Sequence[str], rows: Sequence[Mapping[str, float]]
) -> list[str]:
    """A bar a value, each cut into its shares, all to the scale of the longest; the legend below."""
    parts = [_label(10, top, heading, bold=True), _label(10, top + 18, option)]
    scale = (_WIDTH - _LEFT - 90) / max(max(sum(row.values()) for row in rows), 1e-9)
    for number, (value, row) in enumerate(zip(values, rows, strict=True)):
        y, x = top + 26 + number * _ROW, float(_LEFT)
        parts.append(_label(10, y + 13, value))
        for name, share in row.items():
            width = share * scale
            shown = f"{name} {share:.2%}"
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{_COLOURS[name]}">'
                f"<title>{escape(f'{value}: {shown}')}</title></rect>"
            )
            if share * scale > _LABELLED * _WIDTH:
                parts.append(_label(x + 3, y + 13, f"{share:.1%}"))
            x += width
        parts.append(_label(x + 6, y + 13, f"{sum(row.values()):.2%}"))
    return parts + _legend(top + 26 + len(values) * _ROW, dict.fromkeys(name for row in rows for name in row))


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
