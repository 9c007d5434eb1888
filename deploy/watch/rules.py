"""Recording and alert rules. Rates are rules, not metrics: every share here is a quotient of counters."""

from dataclasses import dataclass, field
from typing import Any

RUNBOOK = "docs/runbook.md"


@dataclass(frozen=True, slots=True)
class Record:
    """A recording rule: a series of its own, named ``level:metric:operation`` as Prometheus recommends."""

    name: str
    expr: str

    def document(self) -> dict[str, Any]:
        """As the rule file has it."""
        return {"record": self.name, "expr": self.expr}


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert rule. ``severity`` is ``page`` (wake somebody) or ``ticket`` (look at it today)."""

    name: str
    expr: str
    severity: str
    held_for: str
    summary: str
    description: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As the rule file has it."""
        annotations = {"summary": self.summary, "runbook": f"{RUNBOOK}#{self.name.lower()}"}
        if self.description:
            annotations["description"] = self.description
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.held_for,
            "labels": {"severity": self.severity, **self.labels},
            "annotations": annotations,
        }


def _rate(metric: str, window: str = "5m", by: str = "instance") -> str:
    return f"sum by ({by}) (rate({metric}[{window}]))"


def _share(part: str, whole: str, window: str = "5m") -> str:
    return f"{_rate(part, window)} / ({_rate(whole, window)} > 0)"


def _quantile(quantile: float, metric: str, label: str) -> str:
    return f"histogram_quantile({quantile}, sum by (instance, {label}, le) (rate({metric}_bucket[5m])))"


RECORDS = (
    Record("instance:kvshelf_prompt_tokens:rate5m", _rate("kvshelf_prompt_tokens_total")),
    Record("instance_source:kvshelf_prompt_tokens:rate5m", _rate("kvshelf_prompt_tokens_total", by="instance, source")),
    Record(
        "instance:kvshelf_hit_tokens:ratio_rate5m",
        _share("kvshelf_hit_tokens_total", "kvshelf_prompt_tokens_total"),
    ),
    Record(
        "instance:kvshelf_saved_tokens:ratio_rate5m",
        _share("kvshelf_saved_tokens_total", "kvshelf_prompt_tokens_total"),
    ),
    Record(
        "instance:kvshelf_replayed_tokens:ratio_rate5m",
        _share("kvshelf_replayed_tokens_total", "kvshelf_prompt_tokens_total"),
    ),
    Record(
        "instance:kvshelf_snapshot_alive:ratio_rate5m",
        _share(
            'kvshelf_lookups_total{class="snapshot",result="hit"}',
            'kvshelf_lookups_total{class="snapshot"}',
        ),
    ),
    Record("instance_mode:kvshelf_resumes:rate5m", _rate("kvshelf_resumes_total", by="instance, mode")),
    Record(
        "instance_class_reason:kvshelf_misses:rate5m",
        _rate('kvshelf_lookups_total{result="miss"}', by="instance, class, reason"),
    ),
    Record("instance_tier_op:kvshelf_tier_bytes:rate5m", _rate("kvshelf_tier_bytes_total", by="instance, tier, op")),
    Record(
        "instance_verb:kvshelf_request_duration_seconds:p50", _quantile(0.5, "kvshelf_request_duration_seconds", "verb")
    ),
    Record(
        "instance_verb:kvshelf_request_duration_seconds:p99",
        _quantile(0.99, "kvshelf_request_duration_seconds", "verb"),
    ),
    Record(
        "instance_tier:kvshelf_tier_used:ratio",
        "kvshelf_tier_used_bytes / (kvshelf_tier_budget_bytes > 0)",
    ),
    Record(
        "instance_tier:kvshelf_age_at_hit_seconds:p95",
        _quantile(0.95, "kvshelf_age_at_hit_seconds", "tier"),
    ),
)

_HIT = "instance:kvshelf_hit_tokens:ratio_rate5m"
_TRAFFIC = "instance:kvshelf_prompt_tokens:rate5m"
_ALIVE = "instance:kvshelf_snapshot_alive:ratio_rate5m"

ALERTS = (
    Alert(
        "KvshelfDown",
        'up{job="kvshelf"} == 0',
        "page",
        "1m",
        "{{ $labels.instance }} does not answer: engines run without a cache.",
    ),
    Alert(
        "KvshelfHitRateFell",
        # Half of an hour ago, at traffic that is neither a third more nor a third less.
        f"{_HIT} < 0.5 * avg_over_time({_HIT}[1h] offset 15m)"
        f" and {_TRAFFIC} > 0.67 * avg_over_time({_TRAFFIC}[1h] offset 15m)"
        f" and {_TRAFFIC} < 1.5 * avg_over_time({_TRAFFIC}[1h] offset 15m)",
        "page",
        "10m",
        "{{ $labels.instance }}: the hit rate halved at equal traffic.",
        "Most likely hashes or namespaces no longer match: a new weights revision, another hash scheme, another salt.",
    ),
    Alert(
        "KvshelfStoresWithoutHits",
        'sum by (instance) (increase(kvshelf_stored_records_total{class="block",outcome="stored"}[1h])) > 1000'
        " and sum by (instance) (increase(kvshelf_hit_tokens_total[1h])) == 0",
        "ticket",
        "30m",
        "{{ $labels.instance }}: blocks are stored, and nothing is ever hit.",
        "An engine that stores under one namespace or hash and asks under another does this.",
    ),
    Alert(
        "KvshelfSnapshotAliveFell",
        f"{_ALIVE} < 0.7 * avg_over_time({_ALIVE}[1h] offset 15m)",
        "ticket",
        "15m",
        "{{ $labels.instance }}: snapshots live less long than they did.",
        "Sessions pause longer than the pool's TTL, or the pool is too small and evicts.",
    ),
    Alert(
        "KvshelfPoolEvicts",
        'sum by (instance) (rate(kvshelf_lookups_total{class="snapshot",reason="evicted"}[10m]))'
        ' > 0.05 * sum by (instance) (rate(kvshelf_lookups_total{class="snapshot"}[10m]))',
        "ticket",
        "15m",
        "{{ $labels.instance }}: more than one snapshot look-up in twenty finds it evicted before its TTL.",
        "Redis is at its maxmemory, or the in-process pool at its budget.",
    ),
    Alert(
        "KvshelfRetentionShort",
        'kvshelf_retention_reached_seconds < on (instance) (0.5 * kvshelf_tier_ttl_seconds{tier="ssd"})',
        "ticket",
        "30m",
        "{{ $labels.instance }}: the budget forces blocks out at less than half their life.",
    ),
    Alert(
        "KvshelfDiskFullSoon",
        "kvshelf_filesystem_free_bytes < 0.03 * kvshelf_filesystem_size_bytes"
        " or predict_linear(kvshelf_filesystem_free_bytes[6h], 4 * 3600) < 0",
        "page",
        "15m",
        "{{ $labels.instance }}: the file system of the data directory will be full within four hours, or nearly is.",
    ),
    Alert(
        "KvshelfExpiryBacklog",
        "kvshelf_expiry_lag_seconds > 0.05 * kvshelf_tier_ttl_seconds",
        "ticket",
        "15m",
        "{{ $labels.instance }}: space of the {{ $labels.tier }} tier's expired records is not taken back.",
    ),
    Alert(
        "KvshelfCorruption",
        'sum by (instance, tier) (increase(kvshelf_tier_faults_total{kind="corrupt"}[15m])) > 0',
        "page",
        "0m",
        "{{ $labels.instance }}: records of the {{ $labels.tier }} tier failed their checksum.",
        "They were answered as misses, no wrong byte was served. The medium or its memory is going bad.",
    ),
    Alert(
        "KvshelfDiskErrors",
        'sum by (instance) (increase(kvshelf_tier_faults_total{tier="ssd",kind=~"io|full"}[10m])) > 0',
        "page",
        "1m",
        "{{ $labels.instance }}: the SSD tier had errors or no room.",
    ),
    Alert(
        "KvshelfBreakerOpen",
        'kvshelf_breaker_state{state="open"} == 1',
        "ticket",
        "2m",
        "{{ $labels.instance }}: the pool is away, every resume replays or rebuilds.",
    ),
    Alert(
        "KvshelfDegraded",
        'kvshelf_health{state="ok"} == 0',
        "ticket",
        "5m",
        "{{ $labels.instance }} is not well; /healthz says why.",
    ),
    Alert(
        "KvshelfStoresLost",
        'sum by (instance) (increase(kvshelf_stored_records_total{outcome="lost"}[15m])) > 0',
        "ticket",
        "5m",
        "{{ $labels.instance }}: stores could not be kept.",
    ),
    Alert(
        "KvshelfSlowPlans",
        'instance_verb:kvshelf_request_duration_seconds:p99{verb="plan"} > 0.25',
        "ticket",
        "10m",
        "{{ $labels.instance }}: one plan in a hundred takes more than 250 ms, which an engine waits for.",
    ),
    Alert(
        "KvshelfRefuses",
        'sum by (instance) (rate(kvshelf_refused_requests_total{reason=~"busy|share|bytes|connections"}[5m])) > 1',
        "ticket",
        "10m",
        "{{ $labels.instance }}: more than one request a second is refused, since too many are under way.",
    ),
    Alert(
        "KvshelfSlowStores",
        'instance_verb:kvshelf_request_duration_seconds:p99{verb="store"} > 5',
        "ticket",
        "15m",
        "{{ $labels.instance }}: one store in a hundred takes more than 5 s.",
    ),
)


def document() -> dict[str, Any]:
    """The rule file."""
    return {
        "groups": [
            {"name": "kvshelf-records", "rules": [record.document() for record in RECORDS]},
            {"name": "kvshelf-alerts", "rules": [alert.document() for alert in ALERTS]},
        ]
    }
