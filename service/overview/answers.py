"""An operator's questions, answered in words from two samples: how it was a while ago, and how it is."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from service.metrics.labels import REASONS, SOURCES
from service.overview.samples import Sample

Level = Literal["good", "look", "bad", "none"]
_SOURCE_WORDS = {
    "hbm": "the engines' own HBM",
    "dram": "the DRAM pool",
    "ssd": "the SSD",
    "replay": "replay",
    "prefill": "prefill, which is no cache at all",
}
_REASON_WORDS = {
    "never_stored": "never stored",
    "expired": "expired",
    "evicted": "evicted",
    "corrupt": "corrupt",
    "tier_down": "tier down",
}
_ADVICE = {
    "never_stored": "new text, or keys that do not match what was stored",
    "expired": "it came back later than its TTL",
    "evicted": "the space is too small for the TTL",
    "corrupt": "the medium damages records",
    "tier_down": "the tier does not serve",
}
_POOL_SHARE_TO_LOOK, _POOL_SHARE_BAD = 0.01, 0.05
_DAY_SECONDS = 86_400.0


class Answer(NamedTuple):
    """A question and its answer. ``level`` says whether it needs somebody: ``good``, ``look``, ``bad``, or ``none``."""

    question: str
    answer: str
    level: Level


def answers(before: Sample, now: Sample, seconds: float) -> list[Answer]:
    """All answers, from a sample taken ``seconds`` ago and one of now."""
    grown = {name: value - before.get(name, 0.0) for name, value in now.items()}
    return [_which_tier(grown), _why_missed(grown, now), _pool_size(grown, now), _disk(grown, now, seconds)]


def _which_tier(grown: Sample) -> Answer:
    question = "Which tier serves most tokens?"
    tokens = {source: grown.get(f"tokens.{source}", 0.0) for source in SOURCES}
    total = sum(tokens.values())
    if total <= 0:
        return Answer(question, "No request has finished in this time.", "none")
    first, *others = sorted(tokens, key=lambda source: -tokens[source])
    rest = ", ".join(f"{source} {_percent(tokens[source] / total)}" for source in others if tokens[source])
    text = f"{_capital(_SOURCE_WORDS[first])}: {_percent(tokens[first] / total)} of {_count(total)} prompt tokens"
    return Answer(question, f"{text}; {rest}." if rest else f"{text}.", "look" if first == "prefill" else "good")


def _why_missed(grown: Sample, now: Sample) -> Answer:
    question = "Why do tokens miss?"
    parts, worst = [], set[str]()
    for kind, plural in (("block", "blocks"), ("snapshot", "snapshots")):
        misses = {reason: grown.get(f"misses.{kind}.{reason}", 0.0) for reason in REASONS}
        total, looked_up = sum(misses.values()), sum(misses.values()) + grown.get(f"hits.{kind}", 0.0)
        if total <= 0:
            continue
        reasons = sorted((reason for reason in misses if misses[reason]), key=lambda reason: -misses[reason])
        worst |= {reason for reason in reasons if misses[reason] > 0.05 * looked_up}
        said = ", ".join(f"{_REASON_WORDS[reason]} {_percent(misses[reason] / total)}" for reason in reasons)
        parts.append(
            f"{_percent(total / looked_up)} of the {plural} looked up: {said} ({_advice(kind, reasons[0], now)})"
        )
    if not parts:
        return Answer(question, "Nothing was looked up and missed in this time.", "none")
    level: Level = "bad" if worst & {"corrupt", "tier_down"} else "look" if "evicted" in worst else "good"
    return Answer(question, "; ".join(parts) + ".", level)


def _advice(kind: str, reason: str, now: Sample) -> str:
    if kind == "snapshot" and reason == "never_stored":
        return "no session stopped at that boundary"
    if reason == "expired":
        ttl = now.get("ttl.ssd" if kind == "block" else "ttl.dram", 0.0)
        return f"{_ADVICE[reason]} of {_duration(ttl)}"
    return _ADVICE[reason]


def _pool_size(grown: Sample, now: Sample) -> Answer:
    question = "Is the DRAM pool too small?"
    evicted = grown.get("misses.snapshot.evicted", 0.0)
    looked_up = grown.get("hits.snapshot", 0.0) + sum(grown.get(f"misses.snapshot.{reason}", 0.0) for reason in REASONS)
    used, budget = now.get("used.dram", 0.0), now.get("budget.dram", 0.0)
    filled = f"{_percent(used / budget)} of its {_bytes(budget)} is in use" if budget else f"{_bytes(used)} is in use"
    if now.get("up.dram", 1.0) < 1:
        return Answer(question, "It does not serve at present, so nobody can tell.", "bad")
    if looked_up <= 0:
        return Answer(question, f"No snapshot was asked for in this time; {filled}.", "none")
    share = evicted / looked_up
    if share < _POOL_SHARE_TO_LOOK:
        return Answer(question, f"No: nothing that was asked for had been evicted before its TTL; {filled}."
                      if not evicted else f"No: {_percent(share)} of what was asked for had been evicted; {filled}.",
                      "good")  # fmt: skip
    level: Level = "bad" if share >= _POOL_SHARE_BAD else "look"
    text = f"Yes: {_percent(share)} of the snapshots asked for had been evicted before their TTL; {filled}."
    return Answer(question, text, level)


def _disk(grown: Sample, now: Sample, seconds: float) -> Answer:
    question = "When will the disk be full?"
    used, budget = now.get("used.ssd", 0.0), now.get("budget.ssd", 0.0)
    rate = grown.get("used.ssd", 0.0) / seconds if seconds > 0 else 0.0
    free, size = now.get("disk_free", 0.0), now.get("disk_size", 0.0)
    parts: list[str] = []
    level: Level = "good"
    if budget and now.get("retention", 0.0) < now.get("ttl.ssd", 0.0):
        parts.append(
            f"The budget of {_bytes(budget)} is spent: the oldest blocks go after {_duration(now['retention'])},"
            f" not {_duration(now['ttl.ssd'])}"
        )
        level = "look"
    elif budget and rate > 0:
        left = (budget - used) / rate
        parts.append(
            f"{_bytes(used)} of the budget of {_bytes(budget)} is used; at this rate it is reached in"
            f" {_duration(left)}, and then the oldest blocks go"
        )
        level = "look" if left < _DAY_SECONDS else "good"
    else:
        parts.append(f"{_bytes(used)} of the budget of {_bytes(budget)} is used, and it does not grow")
    if free < budget - used:
        parts.append(f"the file system has only {_bytes(free)} free, less than the budget may still take")
        level = "bad"
    elif size:
        parts.append(f"the file system has {_bytes(free)} of {_bytes(size)} free")
    return Answer(question, "; ".join(parts) + ".", level)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 or share == 0 else f"{share:.1%}" if share >= 0.001 else "under 0.1%"


def _scaled(value: float, steps: Mapping[str, float]) -> str:
    unit = next((unit for unit, size in steps.items() if value >= size), "")
    scaled = value / steps.get(unit, 1.0)
    return f"{scaled:.3g} {unit}".rstrip() if scaled < 999.5 else f"{scaled:.0f} {unit}".rstrip()


def _count(value: float) -> str:
    return _scaled(value, {"billion": 1e9, "million": 1e6, "thousand": 1e3})


def _bytes(value: float) -> str:
    return (
        _scaled(value, {"TiB": 2.0**40, "GiB": 2.0**30, "MiB": 2.0**20, "KiB": 2.0**10, "B": 1.0}) if value else "0 B"
    )


def _duration(seconds: float) -> str:
    for unit, size in (("days", _DAY_SECONDS), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
