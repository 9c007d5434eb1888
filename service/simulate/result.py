"""What a simulation counts, under the names that a replay uses."""

from collections import Counter
from dataclasses import dataclass, field

from service.planner.accounts import hit_tokens_of, tokens_by_source
from service.planner.base import Cached, Layout, ResumePlan
from service.replay.tally import MODES, SOURCES

DAY_SECONDS = 86_400.0


@dataclass(slots=True)
class SimulationResult:
    """Counts of all requests; bytes are of the profile's real sizes unless it is a miniature.

    ``stored_bytes`` are payloads, as in a replay. What has to do with the disk (``peak_ssd_bytes``, ``written_bytes``,
    ``carried_bytes``) has each record's header and padding; what has to do with the pool has its overhead a record.
    The byte-seconds are what was on each shelf over time, until the last of it has expired after the trace's end.
    """

    requests: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    exact_hit_tokens: int = 0
    matched_tokens: int = 0
    replayed_tokens: int = 0
    run_tokens: int = 0
    saved_tokens: int = 0
    tokens_by_source: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(SOURCES, 0)))
    resumes: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(MODES, 0)))
    exact_resumes: int = 0
    stored_ssd_bytes: int = 0
    stored_dram_bytes: int = 0
    loaded_ssd_bytes: int = 0
    loaded_dram_bytes: int = 0
    peak_ssd_bytes: int = 0
    peak_dram_bytes: int = 0
    evicted_ssd_bytes: int = 0
    evicted_dram_bytes: int = 0
    refused_bytes: int = 0
    written_bytes: int = 0
    carried_bytes: int = 0
    duration_seconds: float = 0.0
    ssd_byte_seconds: float = 0.0
    dram_byte_seconds: float = 0.0

    def finish(self, layout: Layout, plan: ResumePlan, cached: Cached) -> None:
        """Count a request that ran its plan."""
        self.requests += 1
        self.prompt_tokens += plan.prompt_tokens
        self.hit_tokens += hit_tokens_of(layout, plan, cached.global_tokens)
        if layout.block_bytes or plan.exact:
            self.exact_hit_tokens += hit_tokens_of(layout, plan, cached.exact_global_tokens)
        self.matched_tokens += plan.matched_tokens
        self.replayed_tokens += plan.replayed_tokens
        self.run_tokens += plan.prompt_tokens - plan.run_start
        self.saved_tokens += plan.saved_tokens
        for source, tokens in tokens_by_source(plan, layout).items():
            self.tokens_by_source[source.value] += tokens
        self.resumes[plan.mode.value] += 1
        self.exact_resumes += plan.exact
        self.loaded_ssd_bytes += plan.load.ssd_bytes
        self.loaded_dram_bytes += plan.load.dram_bytes

    @property
    def token_hit_rate(self) -> float:
        """Hit tokens of prompt tokens."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def stored_bytes(self) -> int:
        """What was stored or replaced."""
        return self.stored_ssd_bytes + self.stored_dram_bytes

    @property
    def loaded_bytes(self) -> int:
        """What all plans loaded."""
        return self.loaded_ssd_bytes + self.loaded_dram_bytes

    @property
    def written_bytes_per_day(self) -> float:
        """What is written to the disk in a day like those of the trace; a trace of one moment counts as a second."""
        return self.written_bytes / max(self.duration_seconds, 1.0) * DAY_SECONDS

    def document(self) -> dict[str, object]:
        """All of it as plain data for JSON."""
        return {
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "hit_tokens": self.hit_tokens,
            "exact_hit_tokens": self.exact_hit_tokens,
            "token_hit_rate": self.token_hit_rate,
            "matched_tokens": self.matched_tokens,
            "tokens_by_source": dict(self.tokens_by_source),
            "resumes": dict(self.resumes),
            "exact_resumes": self.exact_resumes,
            "replayed_tokens": self.replayed_tokens,
            "run_tokens": self.run_tokens,
            "saved_tokens": self.saved_tokens,
            "stored_bytes": self.stored_bytes,
            "stored_bytes_by_tier": {"ssd": self.stored_ssd_bytes, "dram": self.stored_dram_bytes},
            "loaded_bytes": self.loaded_bytes,
            "loaded_bytes_by_tier": {"ssd": self.loaded_ssd_bytes, "dram": self.loaded_dram_bytes},
            "peak_ssd_bytes": self.peak_ssd_bytes,
            "peak_dram_bytes": self.peak_dram_bytes,
            "evicted_bytes": self.evicted_ssd_bytes + self.evicted_dram_bytes,
            "evicted_bytes_by_tier": {"ssd": self.evicted_ssd_bytes, "dram": self.evicted_dram_bytes},
            "refused_bytes": self.refused_bytes,
            "written_bytes": self.written_bytes,
            "carried_bytes": self.carried_bytes,
            "written_bytes_per_day": self.written_bytes_per_day,
            "duration_seconds": self.duration_seconds,
        }
