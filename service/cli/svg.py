"""Plots as SVG inside a page: stacked columns and lines, coloured by the page's own variables."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from math import floor, log10
from typing import NamedTuple

WIDTH, HEIGHT = 720, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 8, 22
_TICKS = 4
_FEW_POWERS = 2

Points = Sequence[tuple[float, float]]
Show = Callable[[float], str]
"""Writes a value for people."""


class Axis(NamedTuple):
    """From the least to the greatest value; logarithmic or not; ``show`` writes one of its values.

    It is marked at ``marks``, or where there are none, at round values.
    """

    low: float
    high: float
    show: Show
    is_log: bool = False
    marks: Sequence[float] = ()

    def place(self, value: float) -> float:
        """Where a value is, from 0 to 1."""
        if self.is_log:
            return (log10(max(value, self.low)) - log10(self.low)) / (log10(self.high) - log10(self.low))
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> Sequence[float]:
        """Values to draw lines at."""
        if self.marks:
            return self.marks
        if self.is_log:
            powers = range(floor(log10(self.low)), floor(log10(self.high)) + 1)
            factors = (1, 2, 5) if len(powers) <= _FEW_POWERS else (1,)
            marks = [factor * 10.0**power for power in powers for factor in factors]
            return [mark for mark in marks if self.low * (1 - 1e-9) <= mark <= self.high]
        step = _round_up((self.high - self.low) / _TICKS)
        return [self.low + step * number for number in range(floor((self.high - self.low) / step + 1e-9) + 1)]


def columns(ends: Sequence[float], stacks: Sequence[Mapping[str, float]], show: Show, along: Show) -> str:
    """A column for each stretch that ends at ``ends``, of named parts on top of each other."""
    y = Axis(0, max((sum(stack.values()) for stack in stacks), default=0) or 1, show)
    x = Axis(0, ends[-1] if ends else 1, along)
    parts = []
    for start, end, stack in zip([0.0, *ends], ends, stacks, strict=False):
        left, right = _across(x, start), _across(x, end)
        height = 0.0
        for name, value in stack.items():
            if not value:
                continue
            top, bottom = _up(y, height + value), _up(y, height)
            text = f"{along(start)} to {along(end)}: {name} {show(value)}"
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(0.5, right - left - 0.5):.1f}" '
                f'height="{bottom - top:.1f}" fill="var(--{name})"><title>{escape(text)}</title></rect>'
            )
            height += value
    return _plot(x, y, parts)


def lines(series: Mapping[str, Points], x: Axis, y: Axis) -> str:
    """A line a name, with its points."""
    parts = []
    for name, points in series.items():
        places = [(_across(x, at), _up(y, value)) for at, value in points]
        path = " ".join(f"{left:.1f},{top:.1f}" for left, top in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="var(--{name})" stroke-width="1.8"/>')
        for (left, top), (at, value) in zip(places, points, strict=True):
            title = f"<title>{escape(f'{name}, {x.show(at)}: {y.show(value)}')}</title>"
            parts.append(f'<circle cx="{left:.1f}" cy="{top:.1f}" r="2" fill="var(--{name})">{title}</circle>')
    return _plot(x, y, parts)


def legend(names: Sequence[str]) -> str:
    """What the colours mean."""
    spans = "".join(f'<span style="--colour: var(--{name})">{escape(name.replace("_", " "))}</span>' for name in names)
    return f'<p class="legend">{spans}</p>'


def _plot(x: Axis, y: Axis, parts: Sequence[str]) -> str:
    grid = []
    for value in y.ticks():
        top = _up(y, value)
        grid.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{top:.1f}" y2="{top:.1f}"/>')
        grid.append(f'<text x="{_LEFT - 6}" y="{top + 4:.1f}" text-anchor="end">{escape(y.show(value))}</text>')
    for value in x.ticks():
        left, anchor = _across(x, value), "end" if x.place(value) > 0.97 else "middle"
        grid.append(f'<text x="{left:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{escape(x.show(value))}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(grid)}{"".join(parts)}</svg>'


def _across(axis: Axis, value: float) -> float:
    return _LEFT + axis.place(value) * (WIDTH - _LEFT - _RIGHT)


def _up(axis: Axis, value: float) -> float:
    return HEIGHT - _BOTTOM - axis.place(value) * (HEIGHT - _TOP - _BOTTOM)


def _round_up(step: float) -> float:
    """The next of 1, 2, 2.5, 5 and 10 times a power of ten."""
    power: float = 10.0 ** floor(log10(step))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * (1 - 1e-9))
