"""The metrics themselves, and the tier observer that feeds them."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from service.metrics import labels
from service.tracing.base import Tracing
from storage.base import Fact, SilentObserver

_AGE_BUCKETS = (1, 10, 60, 300, 600, 1800, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 48 * 3600, 72 * 3600, 168 * 3600)
_LATENCY_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

# Without this the library adds a series a series that says when it was made, which nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """All metrics of one service, on a registry of their own.

    It is also the :class:`storage.base.TierObserver` of the service's tiers. What they notice goes to ``notice``, by
    tier, event and facts.
    """

    def __init__(self, version: str, notice: Callable[[str, str, Mapping[str, Fact]], None] | None = None) -> None:
        self.registry = CollectorRegistry()
        self.noticed = notice or SilentObserver().noticed
        """See :meth:`storage.base.TierObserver.noticed`."""
        # A tier tells of every record it moves, and finding the labels would cost more than counting.
        self._moved: dict[tuple[str, str], Counter] = {}
        self._make_request_metrics()
        self._make_record_metrics()
        self._make_tier_metrics()
        info = self._gauge("kvshelf_build_info", "Always 1; the version is the label.", "version")
        info.labels(version).set(1)
        self._initialise()

    def _counter(self, name: str, text: str, *names: str) -> Counter:
        return Counter(name, text, names, registry=self.registry)

    def _gauge(self, name: str, text: str, *names: str) -> Gauge:
        return Gauge(name, text, names, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *names: str) -> Histogram:
        return Histogram(name, text, names, buckets=buckets, registry=self.registry)

    def _make_request_metrics(self) -> None:
        self.prompt_tokens = self._counter(
            "kvshelf_prompt_tokens_total", "Prompt tokens of finished requests by where they came from.", "source"
        )
        self.requests = self._counter("kvshelf_requests_total", "Finished requests, once a request id.")
        self.hit_tokens = self._counter(
            "kvshelf_hit_tokens_total", "Prompt tokens of finished requests whose global KV was there, uncapped."
        )
        self.replayed_tokens = self._counter(
            "kvshelf_replayed_tokens_total", "Tokens run again although their global KV was there."
        )
        self.saved_tokens = self._counter(
            "kvshelf_saved_tokens_total", "Prompt tokens of finished requests that were not run."
        )
        self.missed_tokens = self._counter(
            "kvshelf_missed_tokens_total",
            "Prompt tokens of finished requests that were run, by what was missing first.",
            "class",
            "reason",
        )
        self.plans = self._counter("kvshelf_plans_total", "Plans answered.", "mode", "exact")
        self.resumes = self._counter("kvshelf_resumes_total", "Plans that finished requests ran.", "mode", "exact")
        self.latency = self._histogram(
            "kvshelf_request_duration_seconds",
            "Time from a call's start to its answer's end.",
            _LATENCY_BUCKETS,
            "verb",
        )
        self.leases = self._gauge("kvshelf_leases", "Leases alive.")
        self.leased_records = self._gauge("kvshelf_leased_records", "Records under lease.")
        self.denials = self._counter(
            "kvshelf_access_denied_total", "Requests of those who did not say who they are.", "reason"
        )
        self.refused = self._counter(
            "kvshelf_refused_requests_total", "Requests refused, or cut off, for how they or how many came.", "reason"
        )
        self.token_file_ok = self._gauge(
            "kvshelf_token_file_ok", "1 while the tokens in force are those of the file, or none are configured."
        )
        self.local_clients = self._gauge("kvshelf_local_clients", "Local clients that are connected.")
        self.local_refusals = self._counter(
            "kvshelf_local_refusals_total", "Requests of local clients that were refused.", "reason"
        )
        self.health = self._gauge("kvshelf_health", "1 for the state the service is in.", "state")

    def _make_record_metrics(self) -> None:
        self.lookups = self._counter(
            "kvshelf_lookups_total", "Records looked up for plans.", "class", "tier", "result", "reason"
        )
        self.fetched = self._counter(
            "kvshelf_fetched_records_total", "Records of fetches: sent, or missed and why.", "class", "result", "reason"
        )
        self.fetches = self._counter("kvshelf_fetches_total", "Fetches by the plan they answered.", "answer")
        self.stores = self._counter("kvshelf_stored_records_total", "Records of stores.", "class", "outcome", "reason")
        self.local_records = self._counter(
            "kvshelf_local_records_total", "Blocks leased to local clients, which read them themselves."
        )
        self.local_bytes = self._counter("kvshelf_local_bytes_total", "Payload bytes of those blocks.")
        self.lowered = self._counter(
            "kvshelf_lowered_claims_total", "Claims of exact that the plan did not support.", "class"
        )
        self.erased = self._counter("kvshelf_erased_records_total", "Records erased by jobs.", "class")
        self.age_at_hit = self._histogram(
            "kvshelf_age_at_hit_seconds",
            "Time since last use of the deepest record a plan loads.",
            _AGE_BUCKETS,
            "tier",
        )

    def _make_tier_metrics(self) -> None:
        self.evictions = self._counter("kvshelf_evictions_total", "Records gone from a tier.", "tier", "cause")
        self.evicted_bytes = self._counter("kvshelf_evicted_bytes_total", "Payload bytes gone.", "tier", "cause")
        self.age_expired = self._histogram(
            "kvshelf_age_at_expiry_seconds", "Time from store to expiry.", _AGE_BUCKETS, "tier"
        )
        self.tier_bytes = self._counter("kvshelf_tier_bytes_total", "Payload bytes moved.", "tier", "op")
        self.faults = self._counter("kvshelf_tier_faults_total", "Faults answered as misses.", "tier", "kind")
        self.tier_latency = self._histogram(
            "kvshelf_tier_duration_seconds", "Time of one call to a tier.", _LATENCY_BUCKETS, "tier", "op"
        )
        self.records = self._gauge("kvshelf_tier_records", "Records named by the tier's index.", "tier")
        self.live_bytes = self._gauge("kvshelf_tier_live_bytes", "Payload bytes of those records.", "tier")
        self.used_bytes = self._gauge("kvshelf_tier_used_bytes", "Bytes taken on the medium.", "tier")
        self.filled_bytes = self._gauge(
            "kvshelf_tier_filled_bytes", "Of the bytes taken on the medium those that hold something.", "tier"
        )
        self.budget_bytes = self._gauge("kvshelf_tier_budget_bytes", "Bytes it may take; 0 is unknown.", "tier")
        self.ttl = self._gauge("kvshelf_tier_ttl_seconds", "Life of a record from its last use.", "tier")
        self.expiry_lag = self._gauge(
            "kvshelf_expiry_lag_seconds",
            "How long after their end the oldest expired records still take space.",
            "tier",
        )
        self.filesystem_size = self._gauge(
            "kvshelf_filesystem_size_bytes", "Size of the file system of the data directory."
        )
        self.filesystem_free = self._gauge(
            "kvshelf_filesystem_free_bytes", "What is free of it for the service's user."
        )
        self.pinned_bytes = self._gauge("kvshelf_tier_pinned_bytes", "Bytes that leases keep from recycling.", "tier")
        self.tier_up = self._gauge("kvshelf_tier_up", "1 while the tier serves.", "tier")
        self.retention = self._gauge(
            "kvshelf_retention_reached_seconds",
            "Age at which the budget last forced records out; the TTL if it did not.",
        )
        self.scrub_progress = self._gauge("kvshelf_scrub_progress_ratio", "How much of a scrubbing pass is done.")
        self.scrub_completed = self._gauge(
            "kvshelf_scrub_last_completed_timestamp_seconds", "End of the last whole pass; before one, the first start."
        )
        self.scrubbed_bytes = self._counter("kvshelf_scrubbed_bytes_total", "Payload bytes read by scrubbing.")
        self.scrub_corrupt = self._counter(
            "kvshelf_scrub_corrupt_records_total", "Damaged records that scrubbing found."
        )
        self.breaker = self._gauge("kvshelf_breaker_state", "1 for the state the pool's breaker is in.", "state")

    def trace(self, tracing: Tracing) -> None:
        """From here on what is timed is a span, too."""
        self.latency = tracing.timed(self.latency, ("verb",))
        self.tier_latency = tracing.timed(self.tier_latency, ("tier", "operation"))

    def _initialise(self) -> None:
        for source in labels.SOURCES:
            self.prompt_tokens.labels(source)
        for kind, reasons in labels.MISSED:
            for reason in reasons:
                self.missed_tokens.labels(kind, reason)
        for mode in labels.MODES:
            for exact in ("true", "false"):
                self.plans.labels(mode, exact)
                self.resumes.labels(mode, exact)
        for verb in labels.VERBS:
            self.latency.labels(verb)
        for answer in ("plan", "fallback"):
            self.fetches.labels(answer)
        for reason in labels.DENIALS:
            self.denials.labels(reason)
        for reason in labels.REFUSED:
            self.refused.labels(reason)
        for reason in labels.LOCAL_REFUSALS:
            self.local_refusals.labels(reason)
        for state in labels.HEALTH_STATES:
            self.health.labels(state)
        for state in labels.BREAKER_STATES:
            self.breaker.labels(state).set(state == "closed")
        for tier, kind in labels.CLASS_OF_TIER.items():
            self._initialise_class(tier, kind)
            self._initialise_tier(tier)

    def _initialise_class(self, tier: str, kind: str) -> None:
        self.lookups.labels(kind, tier, "hit", "none")
        self.fetched.labels(kind, "hit", "none")
        for reason in labels.REASONS:
            self.lookups.labels(kind, tier, "miss", reason)
            self.fetched.labels(kind, "miss", reason)
        for outcome in labels.STORE_OUTCOMES:
            settled = outcome in ("stored", "replaced", "duplicate")
            for reason in labels.STORE_REASONS:
                if settled == (reason == "none"):
                    self.stores.labels(kind, outcome, reason)
        self.lowered.labels(kind)
        self.erased.labels(kind)

    def _initialise_tier(self, tier: str) -> None:
        for cause in labels.CAUSES:
            self.evictions.labels(tier, cause)
            self.evicted_bytes.labels(tier, cause)
        for operation in labels.OPERATIONS:
            self._moved[tier, operation] = self.tier_bytes.labels(tier, operation)
        for operation in ("hold", "read", "write"):
            self.tier_latency.labels(tier, operation)
        for kind in labels.FAULTS:
            self.faults.labels(tier, kind)
        for histogram in (self.age_at_hit, self.age_expired):
            histogram.labels(tier)
        for gauge in (self.records, self.live_bytes, self.used_bytes, self.budget_bytes, self.pinned_bytes):
            gauge.labels(tier)
        for gauge in (self.ttl, self.expiry_lag, self.filled_bytes):
            gauge.labels(tier)
        self.tier_up.labels(tier).set(1)

    def evicted(self, tier: str, cause: str, records: int, payload_bytes: int) -> None:
        """See :meth:`storage.base.TierObserver.evicted`."""
        self.evictions.labels(tier, cause).inc(records)
        self.evicted_bytes.labels(tier, cause).inc(payload_bytes)

    def age_at_expiry(self, tier: str, seconds: float) -> None:
        """See :meth:`storage.base.TierObserver.age_at_expiry`."""
        self.age_expired.labels(tier).observe(seconds)

    def moved(self, tier: str, operation: str, payload_bytes: int) -> None:
        """See :meth:`storage.base.TierObserver.moved`."""
        self._moved[tier, operation].inc(payload_bytes)

    def fault(self, tier: str, kind: str) -> None:
        """See :meth:`storage.base.TierObserver.fault`."""
        self.faults.labels(tier, kind).inc()

    def set_state(self, gauge: Gauge, states: tuple[str, ...], current: str) -> None:
        """Set a one-hot gauge: 1 for ``current``, 0 for the other states."""
        for state in states:
            gauge.labels(state).set(state == current)

    def render(self, refresh: Callable[[], None]) -> bytes:
        """The exposition text, after ``refresh`` has set the gauges that are read at scrape time."""
        refresh()
        return generate_latest(self.registry)
