"""What a replay has seen: counts of tokens, plans, records and bytes, and how long each verb took."""

from collections import Counter
from dataclasses import dataclass, field, fields
from math import ceil

from kvshelf_client.answers import Resume, StoreResult
from kvshelf_client.plans import Plan

SOURCES = ("hbm", "dram", "ssd", "replay", "prefill")
MODES = ("full_attention", "resident", "snapshot", "bounded_replay", "exact_rebuild", "cold")
VERBS = ("plan", "fetch", "store", "release")
READY = "ready"
LATENCIES = (*VERBS, READY)
"""Each verb, and from when a request was to start until all that it loads is there."""
PERCENTILES = (50, 95, 99)


@dataclass(slots=True)
class Tally:
    """Counts of the requests that are finished, and of every call, also those of a request that is not.

    ``hit_tokens`` is what an infinite prefix cache would call a hit: the stored prefix, uncapped. ``matched_tokens`` is
    what the plans used. Latencies are in seconds, one a call; those of ``plan`` and ``ready`` count from when the
    request was to start.
    """

    requests: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    exact_hit_tokens: int = 0
    matched_tokens: int = 0
    replayed_tokens: int = 0
    tokens_by_source: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(SOURCES, 0)))
    resumes: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(MODES, 0)))
    exact_resumes: int = 0
    fallbacks: int = 0
    replans: int = 0
    late_releases: int = 0
    misses: Counter[str] = field(default_factory=Counter)
    fetched_records: int = 0
    fetched_bytes: int = 0
    stored_bytes: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    latencies: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in LATENCIES})
    elapsed_seconds: float = 0.0
    max_lag_seconds: float = 0.0

    def finish(self, plan: Plan, ran: Resume) -> None:
        """Count a request that ran: ``ran`` is the plan's own way or its fallback."""
        self.requests += 1
        self.prompt_tokens += ran.prompt_tokens
        self.hit_tokens += plan.hit_tokens
        self.exact_hit_tokens += plan.exact_hit_tokens
        self.matched_tokens += ran.matched_tokens
        self.replayed_tokens += ran.replayed_tokens
        self.tokens_by_source.update(ran.tokens_by_source)
        self.resumes[ran.mode] += 1
        self.exact_resumes += ran.exact
        self.fallbacks += ran is not plan.resume

    def fetched(self, payload_bytes: int) -> None:
        """Count a record that arrived whole and right."""
        self.fetched_records += 1
        self.fetched_bytes += payload_bytes

    def stored(self, result: StoreResult, block_bytes: int, snapshot_bytes: int) -> None:
        """Count a store's outcomes, and the bytes of what was taken in."""
        for outcome in result.outcomes:
            self.outcomes[outcome.outcome] += 1
            if outcome.outcome in ("stored", "replaced"):
                self.stored_bytes += block_bytes if outcome.record_class == "block" else snapshot_bytes

    def add(self, other: "Tally") -> None:
        """Count what another has counted, too. Times elapsed are not added."""
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, Counter):
                mine.update(theirs)
            elif isinstance(mine, int):
                setattr(self, each.name, mine + theirs)
        for name, seconds in other.latencies.items():
            self.latencies[name] += seconds
        self.max_lag_seconds = max(self.max_lag_seconds, other.max_lag_seconds)

    def percentile(self, name: str, percent: float) -> float:
        """The latency that so many percent of the calls stayed within (nearest rank); 0 where there was no call."""
        ordered = sorted(self.latencies[name]) or [0.0]
        return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]

    def latency_seconds(self, name: str) -> dict[str, float]:
        """Percentiles and the largest of a verb's latencies."""
        return {**{f"p{each}": self.percentile(name, each) for each in PERCENTILES}, "max": self.percentile(name, 100)}

    def document(self) -> dict[str, object]:
        """All of it as plain data for JSON."""
        return {
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "hit_tokens": self.hit_tokens,
            "exact_hit_tokens": self.exact_hit_tokens,
            "matched_tokens": self.matched_tokens,
            "tokens_by_source": dict(self.tokens_by_source),
            "resumes": dict(self.resumes),
            "exact_resumes": self.exact_resumes,
            "replayed_tokens": self.replayed_tokens,
            "token_hit_rate": self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0,
            "fallbacks": self.fallbacks,
            "replans": self.replans,
            "late_releases": self.late_releases,
            "misses": dict(self.misses),
            "fetched_records": self.fetched_records,
            "fetched_bytes": self.fetched_bytes,
            "stored_bytes": self.stored_bytes,
            "store_outcomes": dict(self.outcomes),
            "latency_seconds": {name: self.latency_seconds(name) for name in LATENCIES},
            "elapsed_seconds": self.elapsed_seconds,
            "requests_per_second": self.requests / self.elapsed_seconds if self.elapsed_seconds else 0.0,
            "max_lag_seconds": self.max_lag_seconds,
        }
