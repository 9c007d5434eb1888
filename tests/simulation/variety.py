"""What must have happened in histories of a kind: those in which nothing happens prove nothing."""

from collections import Counter

from tests.simulation.histories import KINDS, PROFILES
from tests.simulation.world import injected

_EVERYWHERE = (
    "duplicate none",
    "lease gone",
    "lease limit",
    "planned again",
    "ran cold by itself",
    "ran resident exact",
    "refused below_write_floor",
    "refused corrupt",
    "refused no_boundary",
    "refused wrong_shard",
    "refused wrong_size",
    "released too late",
    "replaced none",
    "the service dies and starts",
    "the service stops and starts",
)
_WITH_SNAPSHOTS = (
    "asked for a cold plan",
    "asked for the fallback",
    "fell back",
    "fell back by itself",
    "fetched again after another shard fell back",
    "fetched twice",
    "lost tier_down",
    "named the plan that was void",
    "ran snapshot approximate",
    "ran snapshot exact",
    "second-guessed",
)
_WITH_FAULTS = ("a block was missing", "crashed in a write", "fell back", "lost tier_down", "refused corrupt")
_LEAST_STORED, _LEAST_WARM = 1000, 100


def missing_in(name: str, seen: Counter[str]) -> list[str]:
    """What some eight or more histories of a kind should have had between them, and did not."""
    missing = [what for what in _expected_of(name) if not seen[what]]
    if seen["stored none"] <= _LEAST_STORED:
        missing.append(f"{_LEAST_STORED} stored records")
    ran = sum(count for what, count in seen.items() if what.startswith("ran "))
    if ran - seen["ran cold exact"] - seen["ran cold by itself"] <= _LEAST_WARM:
        missing.append(f"{_LEAST_WARM} runs on what was kept")
    return missing


def _expected_of(name: str) -> list[str]:
    kind = KINDS[name]
    if kind.faults:
        return [*_WITH_FAULTS, *(injected("ssd", fault) for fault in kind.faults)]
    expected = [*_EVERYWHERE]
    if name in PROFILES and kind.profile.global_rows:
        expected += ["a block was missing", "kept what came"]
    if name in PROFILES and kind.profile.state_layers:
        expected += _WITH_SNAPSHOTS
    return expected
