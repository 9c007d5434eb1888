"""A replay as one page: figures and plots, no script, nothing to fetch, dark or light as the reader has it."""

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from math import ceil

from service.cli.progress import duration
from service.cli.replay_text import describe
from service.cli.svg import Axis, Points, columns, legend, lines
from service.cli.tables import share, size
from service.replay.replayer import Replayer
from service.replay.samples import Sample
from service.replay.tally import LATENCIES, MODES, SOURCES, Tally

_MOST_COLUMNS = 90
_CURVE = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0)
_LEAST_SECONDS = 1e-4
_FAR_BELOW = 20

Stretch = tuple[float, Tally]
"""The second at which a stretch of the replay ends, and what ended in it."""


def report(title: str, summary: str, about: Mapping[str, str], replayer: Replayer, samples: Sequence[Sample]) -> str:
    """The page.

    Args:
        title: what was replayed.
        summary: what came of it, in a sentence.
        about: how it was replayed, as names and values.
        replayer: has the figures.
        samples: the service's tiers meanwhile.
    """
    tally = replayer.tally
    stretches = _stretches(replayer.timeline)
    plots = [
        ("Where prompt tokens came from, a second", *_tokens(stretches)),
        ("How requests resumed, a second", *_resumes(stretches)),
        ("Latency by percentile", *_percentiles(tally)),
        ("Until the prefix is there (ready), over time", *_ready(stretches)),
        ("Bytes fetched and stored, a second", *_bytes(stretches)),
        *((_use_heading(name, samples), *_use(name, samples)) for name in _names(samples)),
    ]
    sections = "\n".join(
        f"<section><h2>{escape(heading)}</h2>{legend(names)}{plot}</section>" for heading, names, plot in plots
    )
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in about.items())
    style = resources.files("service.cli").joinpath("report.css").read_text("utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style></head>\n<body><h1>{escape(title)}</h1>\n"
        f"<p>{escape(summary)}</p>\n"
        f'<ul class="cards">{_cards(tally)}</ul>\n<dl>{facts}</dl>\n<main>\n{sections}\n</main>\n'
        f"<details open><summary>All figures</summary><pre>{escape(describe(tally))}</pre></details>\n</body></html>\n"
    )


_TIERS = {"ssd": "SSD tier", "dram": "DRAM pool"}


def _cards(tally: Tally) -> str:
    """The figures one looks for first."""
    latency = tally.latency_seconds("ready")
    cards = {
        "requests": f"{tally.requests:,}",
        "requests a second": f"{tally.requests / tally.elapsed_seconds:.1f}" if tally.elapsed_seconds else "-",
        "prompt tokens hit": share(tally.hit_tokens, tally.prompt_tokens),
        "ready, p50 / p99": f"{_latency(latency['p50'])} / {_latency(latency['p99'])}",
        "fetched, every byte right": size(tally.fetched_bytes),
        "stored": size(tally.stored_bytes),
    }
    return "".join(f"<li><b>{escape(value)}</b>{escape(name)}</li>" for name, value in cards.items())


def _stretches(timeline: Mapping[int, Tally]) -> list[Stretch]:
    """The seconds, put together so that there are not too many."""
    seconds = max(timeline, default=0) + 1
    width = ceil(seconds / _MOST_COLUMNS)
    found = [(min(seconds, start + width), Tally()) for start in range(0, seconds, width)]
    for second, part in timeline.items():
        found[second // width][1].add(part)
    for number, (end, part) in enumerate(found):
        part.elapsed_seconds = end - (found[number - 1][0] if number else 0)
    return [(float(end), part) for end, part in found]


def _stacked(stretches: Sequence[Stretch], stacks: Sequence[Mapping[str, float]], unit: str) -> str:
    ends = [end for end, _ in stretches]
    rates = [
        {name: value / part.elapsed_seconds for name, value in stack.items()}
        for (_, part), stack in zip(stretches, stacks, strict=True)
    ]
    return columns(ends, rates, lambda value: size(value) if unit == "bytes" else _short(value), duration)


def _tokens(stretches: Sequence[Stretch]) -> tuple[Sequence[str], str]:
    stacks = [{name: part.tokens_by_source[name] for name in SOURCES} for _, part in stretches]
    return _seen(SOURCES, stacks), _stacked(stretches, stacks, "tokens")


def _resumes(stretches: Sequence[Stretch]) -> tuple[Sequence[str], str]:
    stacks = [{name: part.resumes[name] for name in MODES} for _, part in stretches]
    return _seen(MODES, stacks), _stacked(stretches, stacks, "requests")


def _bytes(stretches: Sequence[Stretch]) -> tuple[Sequence[str], str]:
    stacks = [{"fetched": part.fetched_bytes, "stored": part.stored_bytes} for _, part in stretches]
    return ("fetched", "stored"), _stacked(stretches, stacks, "bytes")


def _seen(names: Sequence[str], stacks: Sequence[Mapping[str, float]]) -> list[str]:
    return [name for name in names if any(stack[name] for stack in stacks)]


def _percentiles(tally: Tally) -> tuple[Sequence[str], str]:
    """A line a verb; the percentiles stand at equal distances."""
    series = {
        name: [(float(place), tally.percentile(name, percent)) for place, percent in enumerate(_CURVE)]
        for name in LATENCIES
        if tally.latencies[name]
    }
    x = Axis(0, len(_CURVE) - 1, _percent, marks=range(len(_CURVE)))
    return list(series), lines(series, x, _axis(series))


def _ready(stretches: Sequence[Stretch]) -> tuple[Sequence[str], str]:
    series = {
        name: [(end, part.percentile("ready", percent)) for end, part in stretches if part.latencies["ready"]]
        for name, percent in (("p50", 50.0), ("p99", 99.0))
    }
    return list(series), lines(series, Axis(0, stretches[-1][0], duration), _axis(series))


def _axis(series: Mapping[str, Points]) -> Axis:
    """Seconds, logarithmic, from the power of ten below all values to above the greatest."""
    values = [max(value, _LEAST_SECONDS) for points in series.values() for _, value in points] or [_LEAST_SECONDS]
    low = _LEAST_SECONDS
    while low * 10 <= min(values):
        low *= 10
    return Axis(low, max(max(values), low * 10), _latency, is_log=True)


def _names(samples: Sequence[Sample]) -> list[str]:
    return list(samples[-1].tiers) if samples else []


def _use_heading(name: str, samples: Sequence[Sample]) -> str:
    budget = samples[-1].tiers[name].budget_bytes
    return f"In the {_TIERS.get(name, name)}" + (f", of {size(budget)}" if budget else "")


def _use(name: str, samples: Sequence[Sample]) -> tuple[Sequence[str], str]:
    """What is in a tier, and its budget if it has one that is in sight."""
    uses = [(sample.seconds, sample.tiers[name]) for sample in samples]
    series: dict[str, Points] = {"used": [(at, use.used_bytes or use.live_bytes) for at, use in uses]}
    most = max(value for _, value in series["used"])
    if most * _FAR_BELOW > uses[-1][1].budget_bytes > 0:
        series["budget"] = [(at, use.budget_bytes) for at, use in (uses[0], uses[-1])]
    high = max(value for points in series.values() for _, value in points) or 1
    return list(series), lines(series, Axis(0, max(uses[-1][0], 1.0), duration), Axis(0, high * 1.05, size))


def _percent(place: float) -> str:
    percent = _CURVE[round(place)]
    return "max" if percent == 100 else f"p{percent:g}"


def _latency(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _short(value: float) -> str:
    for unit, factor in (("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"
