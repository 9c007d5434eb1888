"""One sample: the figures of the metrics that the page draws, flat, by names of the page's own.

Counters and histograms are as they stand; the page and :mod:`service.overview.situation` look at differences.
"""

from typing import TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample as MetricSample

from service.shelf.condition import refresh_gauges
from service.shelf.parts import Parts

Sample: TypeAlias = dict[str, float]
"""Figures by name, such as ``tokens.ssd``, ``misses.snapshot.evicted``, ``used.dram`` (bytes) or ``slow.plan.0.1``."""

SHOWN_VERBS = ("plan", "fetch", "store", "release")

_NAMES = {
    "kvshelf_prompt_tokens_total": ("tokens", "source"),
    "kvshelf_hit_tokens_total": ("hit_tokens",),
    "kvshelf_missed_tokens_total": ("missed", "class", "reason"),
    "kvshelf_requests_total": ("requests",),
    "kvshelf_resumes_total": ("resumes", "mode"),
    "kvshelf_stored_records_total": ("stores", "class", "outcome"),
    "kvshelf_local_records_total": ("local_records",),
    "kvshelf_local_bytes_total": ("local_bytes",),
    "kvshelf_tier_bytes_total": ("bytes", "tier", "op"),
    "kvshelf_evictions_total": ("gone", "tier", "cause"),
    "kvshelf_tier_faults_total": ("faults", "tier"),
    "kvshelf_tier_used_bytes": ("used", "tier"),
    "kvshelf_tier_filled_bytes": ("filled", "tier"),
    "kvshelf_tier_live_bytes": ("live", "tier"),
    "kvshelf_tier_budget_bytes": ("budget", "tier"),
    "kvshelf_tier_records": ("records", "tier"),
    "kvshelf_tier_ttl_seconds": ("ttl", "tier"),
    "kvshelf_tier_up": ("up", "tier"),
    "kvshelf_retention_reached_seconds": ("retention",),
    "kvshelf_filesystem_free_bytes": ("disk_free",),
    "kvshelf_filesystem_size_bytes": ("disk_size",),
    "kvshelf_leases": ("leases",),
    "kvshelf_age_at_hit_seconds_bucket": ("age", "tier", "le"),
    "kvshelf_age_at_hit_seconds_count": ("age", "tier"),
}
"""Which series are taken, under which name, and which labels of theirs are kept; over the others they are summed."""


def take(parts: Parts) -> Sample:
    """A sample of now. Blocks as a scrape does."""
    refresh_gauges(parts)
    return sample_of(parts.metrics.registry)


def sample_of(registry: CollectorRegistry) -> Sample:
    """A sample of a registry whose gauges are fresh."""
    figures: Sample = {}
    for family in registry.collect():
        for one in family.samples:
            for name in (_name_of(one), _refusal_of(one)):
                if name is not None:
                    figures[name] = figures.get(name, 0.0) + one.value
    return figures


def _name_of(one: MetricSample) -> str | None:
    if one.name in _NAMES:
        head, *labels = _NAMES[one.name]
        return ".".join([head, *(one.labels[label] for label in labels)])
    if one.name == "kvshelf_lookups_total":
        kind, reason = one.labels["class"], one.labels["reason"]
        return f"hits.{kind}" if one.labels["result"] == "hit" else f"misses.{kind}.{reason}"
    if one.name == "kvshelf_breaker_state":
        return f"breaker.{one.labels['state']}"
    if one.name.startswith("kvshelf_request_duration_seconds_") and one.labels["verb"] in SHOWN_VERBS:
        return _duration_name(one)
    return None


def _refusal_of(one: MetricSample) -> str | None:
    """Records that were not kept have a second name, with the reason: ``unkept.snapshot.full``."""
    if one.name != "kvshelf_stored_records_total" or one.labels["reason"] == "none":
        return None
    return f"unkept.{one.labels['class']}.{one.labels['reason']}"


def _duration_name(one: MetricSample) -> str | None:
    if one.name.endswith("_bucket"):
        return f"took.{one.labels['verb']}.{one.labels['le']}"
    return f"calls.{one.labels['verb']}" if one.name.endswith("_count") else None
