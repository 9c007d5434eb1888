"""What the dashboards show: panels as data, in rows. Grafana's own JSON is made in :mod:`deploy.watch.grafana`."""

from dataclasses import dataclass
from typing import Literal

Unit = Literal["percentunit", "s", "bytes", "Bps", "short", "ops"]


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot. ``queries`` are pairs of PromQL and legend; ``text`` says what a reader should make of it.

    ``width`` is in Grafana's columns, 24 a row.
    """

    title: str
    text: str
    queries: tuple[tuple[str, str], ...]
    unit: Unit = "short"
    kind: Literal["timeseries", "stat", "bargauge"] = "timeseries"
    is_stacked: bool = False
    width: int = 12
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page of panels, in named rows."""

    uid: str
    title: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]


def _of(series: str, matchers: str = "") -> str:
    """A series of the chosen instances."""
    return series + '{instance=~"$instance"' + ("," + matchers if matchers else "") + "}"


def _sum(series: str, by: str, matchers: str = "", window: str = "$__rate_interval") -> str:
    return f"sum by ({by}) (rate({_of(series, matchers)}[{window}]))"


def _share_of_tokens(metric: str) -> str:
    tokens = f"sum(rate({_of('kvshelf_prompt_tokens_total')}[$__rate_interval]))"
    return f"sum(rate({_of(metric)}[$__rate_interval])) / ({tokens} > 0)"


OVERVIEW = Dashboard(
    "kvshelf-overview",
    "kvshelf: what the cache gives",
    (
        (
            "Tokens",
            (
                Panel(
                    "Hit rate",
                    "Prompt tokens whose global KV was there.",
                    ((_share_of_tokens("kvshelf_hit_tokens_total"), ""),),
                    "percentunit",
                    "stat",
                    width=6,
                ),
                Panel(
                    "Saved",
                    "Prompt tokens that no engine had to run.",
                    ((_share_of_tokens("kvshelf_saved_tokens_total"), ""),),
                    "percentunit",
                    "stat",
                    width=6,
                ),
                Panel(
                    "Replayed",
                    "Tokens run again because the window's state was gone: small is good.",
                    ((_share_of_tokens("kvshelf_replayed_tokens_total"), ""),),
                    "percentunit",
                    "stat",
                    width=6,
                ),
                Panel(
                    "Health",
                    "1 for the state each node is in.",
                    ((_of("kvshelf_health") + " == 1", "{{instance}} {{state}}"),),
                    "short",
                    "stat",
                    width=6,
                ),
                Panel(
                    "Where prompt tokens come from",
                    "Tokens a second by source; the sum is the traffic.",
                    ((_sum("kvshelf_prompt_tokens_total", "source"), "{{source}}"),),
                    is_stacked=True,
                ),
                Panel(
                    "How requests resume",
                    "Requests a second by the mode of the plan that ran.",
                    ((_sum("kvshelf_resumes_total", "mode"), "{{mode}}"),),
                    "ops",
                    is_stacked=True,
                ),
                Panel(
                    "Why tokens are run",
                    "Prompt tokens a second that were run, by what was missing first. New text is no ailment.",
                    ((_sum("kvshelf_missed_tokens_total", "class, reason"), "{{class}} {{reason}}"),),
                    "short",
                    is_stacked=True,
                ),
                Panel(
                    "Why records are missed",
                    "Look-ups a second that missed, by class and reason.",
                    ((_sum("kvshelf_lookups_total", "class, reason", 'result="miss"'), "{{class}} {{reason}}"),),
                    "ops",
                    is_stacked=True,
                ),
                Panel(
                    "Snapshots alive at resume",
                    "Share of snapshot look-ups that found one. Falls when the pool is too small or its TTL too short.",
                    ((_of("instance:kvshelf_snapshot_alive:ratio_rate5m"), "{{instance}}"),),
                    "percentunit",
                    maximum=1,
                ),
            ),
        ),
        (
            "Latency",
            (
                Panel(
                    "Median by verb",
                    "Half of all calls are faster.",
                    ((_of("instance_verb:kvshelf_request_duration_seconds:p50"), "{{instance}} {{verb}}"),),
                    "s",
                ),
                Panel(
                    "99th percentile by verb",
                    "One call in a hundred is slower.",
                    ((_of("instance_verb:kvshelf_request_duration_seconds:p99"), "{{instance}} {{verb}}"),),
                    "s",
                ),
            ),
        ),
    ),
)

TIERS = Dashboard(
    "kvshelf-tiers",
    "kvshelf: the tiers",
    (
        (
            "Space",
            (
                Panel(
                    "Used of the budget",
                    "By tier.",
                    ((_of("instance_tier:kvshelf_tier_used:ratio"), "{{instance}} {{tier}}"),),
                    "percentunit",
                    maximum=1,
                ),
                Panel(
                    "Used and budget",
                    "Bytes on the medium.",
                    (
                        (_of("kvshelf_tier_used_bytes"), "{{instance}} {{tier}} used"),
                        (_of("kvshelf_tier_budget_bytes"), "{{instance}} {{tier}} budget"),
                    ),
                    "bytes",
                ),
                Panel(
                    "Free on the file system",
                    "Of the data directory, and what the last six hours say of the next four.",
                    (
                        (_of("kvshelf_filesystem_free_bytes"), "{{instance}} free"),
                        (
                            "predict_linear(" + _of("kvshelf_filesystem_free_bytes") + "[6h], 4 * 3600)",
                            "{{instance}} in 4 h",
                        ),
                    ),
                    "bytes",
                ),
                Panel(
                    "Retention reached",
                    "Age at which the budget forced blocks out, against their life.",
                    (
                        (_of("kvshelf_retention_reached_seconds"), "{{instance}} reached"),
                        (_of("kvshelf_tier_ttl_seconds", 'tier="ssd"'), "{{instance}} TTL"),
                    ),
                    "s",
                ),
                Panel(
                    "Age at hit, 95th percentile",
                    "Far below the TTL: the TTL could be shorter. At the TTL: longer.",
                    (
                        (_of("instance_tier:kvshelf_age_at_hit_seconds:p95"), "{{instance}} {{tier}}"),
                        (_of("kvshelf_tier_ttl_seconds"), "{{instance}} {{tier}} TTL"),
                    ),
                    "s",
                ),
                Panel(
                    "Records gone",
                    "A second, by tier and cause.",
                    ((_sum("kvshelf_evictions_total", "tier, cause"), "{{tier}} {{cause}}"),),
                    "ops",
                    is_stacked=True,
                ),
                Panel(
                    "Expiry lag",
                    "How long after their end the oldest expired records still take space.",
                    ((_of("kvshelf_expiry_lag_seconds"), "{{instance}} {{tier}}"),),
                    "s",
                ),
                Panel(
                    "Pinned by leases",
                    "Bytes that leases keep from being recycled.",
                    ((_of("kvshelf_tier_pinned_bytes"), "{{instance}} {{tier}}"),),
                    "bytes",
                ),
            ),
        ),
        (
            "Work",
            (
                Panel(
                    "Bytes moved",
                    "A second, by tier and operation; carry is what expiry wrote again.",
                    ((_sum("kvshelf_tier_bytes_total", "tier, op"), "{{tier}} {{op}}"),),
                    "Bps",
                ),
                Panel(
                    "Records stored",
                    "A second, by class and outcome.",
                    ((_sum("kvshelf_stored_records_total", "class, outcome"), "{{class}} {{outcome}}"),),
                    "ops",
                ),
                Panel(
                    "Tier latency, 99th percentile",
                    "Of one call to a tier.",
                    (
                        (
                            "histogram_quantile(0.99, "
                            + _sum("kvshelf_tier_duration_seconds_bucket", "tier, op, le")
                            + ")",
                            "{{tier}} {{op}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "Faults",
                    "A second, answered as misses.",
                    ((_sum("kvshelf_tier_faults_total", "tier, kind"), "{{tier}} {{kind}}"),),
                    "ops",
                ),
                Panel(
                    "Breaker of the pool",
                    "1 for the state it is in.",
                    ((_of("kvshelf_breaker_state"), "{{instance}} {{state}}"),),
                    maximum=1,
                ),
                Panel(
                    "Leases",
                    "Alive, and the records under them.",
                    (
                        (_of("kvshelf_leases"), "{{instance}} leases"),
                        (_of("kvshelf_leased_records"), "{{instance}} records"),
                    ),
                ),
            ),
        ),
    ),
)

DASHBOARDS = (OVERVIEW, TIERS)
