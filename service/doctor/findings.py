"""From a service's figures to what is wrong with it, in words, and what to do. Pure: no I/O."""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from service.metrics.labels import REASONS, SOURCES

_FEW_LOOKUPS = 100.0
_SHARE_TO_TELL = 0.05
_SLOW_PLAN_SECONDS = 0.05


class Severity(IntEnum):
    """How much a finding matters; the exit status of the command."""

    FINE = 0
    LOOK = 1
    BAD = 2


class Finding(NamedTuple):
    """Something to know: what, the figures that say so, and what to do about it."""

    severity: Severity
    title: str
    evidence: str
    advice: str


def findings(overview: Mapping[str, Any]) -> list[Finding]:
    """What the document of ``/v1/overview`` says, worst first. Its counters are since the service's start."""
    figures = dict(zip(overview["names"], overview["now"]["values"], strict=True))
    found = [*_of_health(overview["health"]), *_of_traffic(figures), *_of_blocks(figures), *_of_snapshots(figures)]
    found += [*_of_space(figures), *_of_stores(figures), *_of_latency(figures)]
    return sorted(found or [_fine(figures)], key=lambda finding: -finding.severity)


def _of_health(health: Mapping[str, Any]) -> Iterator[Finding]:
    for cause in health["causes"]:
        yield Finding(Severity.BAD, "The service is not well", str(cause), "See docs/runbook.md, KvshelfDegraded.")


def _of_traffic(figures: Mapping[str, float]) -> Iterator[Finding]:
    plans, requests = figures.get("calls.plan", 0.0), figures.get("requests", 0.0)
    if not plans:
        yield Finding(
            Severity.LOOK, "Nobody asks", "No plan was asked for since the start.",
            "Point an engine's client here, or see whether its breaker is open (client.counters()).",
        )  # fmt: skip
    elif plans >= 10 and requests < plans / 2:
        yield Finding(
            Severity.LOOK, "Requests end late", f"{plans:.0f} plans, but only {requests:.0f} requests have ended.",
            "Release each plan when its request is done: until its lease ends it is not counted.",
        )  # fmt: skip


def _of_blocks(figures: Mapping[str, float]) -> Iterator[Finding]:
    stored, hit = figures.get("stores.block.stored", 0.0), figures.get("hit_tokens", 0.0)
    looked_up, misses = _looked_up(figures, "block")
    if stored >= _FEW_LOOKUPS and looked_up >= _FEW_LOOKUPS and not hit:
        yield Finding(
            Severity.BAD, "What is stored is never found",
            f"{stored:.0f} blocks were stored, {looked_up:.0f} look-ups found none of them.",
            "Keys do not match: compare POST /v1/namespaces/NAME/hash with the engine's own hashes; look at"
            " GET /v1/namespaces for a second namespace; a date or an id at the start of each prompt does it, too.",
        )  # fmt: skip
        return
    advice = {
        "expired": "Sessions come back later than store.ttl_seconds: raise it if the disk allows (kvshelf size).",
        "evicted": "store.budget_bytes is too small for the life that is asked for: raise it, or add a node.",
        "corrupt": "The medium damages records: see KvshelfCorruption in docs/runbook.md, and run kvshelf scrub.",
        "tier_down": "The SSD tier did not serve for a while: see its log.",
    }
    for reason, text in advice.items():
        if looked_up and misses[reason] / looked_up > (0 if reason == "corrupt" else _SHARE_TO_TELL):
            severity = Severity.BAD if reason in ("corrupt", "tier_down") else Severity.LOOK
            yield Finding(severity, f"Blocks are missed: {_said(reason)}", _share(misses[reason], looked_up), text)


def _of_snapshots(figures: Mapping[str, float]) -> Iterator[Finding]:
    looked_up, misses = _looked_up(figures, "snapshot")
    advice = {
        "expired": "Sessions pause longer than pool.ttl_seconds: raise it. kvshelf simulate --sweep state-ttl=1m,5m,10m"
        " says what that buys.",
        "evicted": "The pool is too small: more memory (maxmemory, pool.budget_bytes), or a shorter TTL.",
        "tier_down": "The pool was away for a while: see its own log, and kvshelf_tier_faults_total.",
    }
    for reason, text in advice.items():
        if looked_up >= 10 and misses[reason] / looked_up > _SHARE_TO_TELL:
            evidence = f"{_share(misses[reason], looked_up)} Each costs the replay or rebuild of a window."
            yield Finding(Severity.LOOK, f"Snapshots are missed: {_said(reason)}", evidence, text)
    stored = figures.get("stores.snapshot.stored", 0.0)
    if looked_up >= _FEW_LOOKUPS and not stored:
        yield Finding(
            Severity.LOOK, "No snapshots are stored", f"{looked_up:.0f} were looked for, none was ever stored.",
            "Store one at the last full block of the prompt and of the finished turn: unaligned ones are never found.",
        )  # fmt: skip


def _of_space(figures: Mapping[str, float]) -> Iterator[Finding]:
    retention, life = figures.get("retention", 0.0), figures.get("ttl.ssd", 0.0)
    if retention < life:
        yield Finding(
            Severity.BAD if retention < life / 4 else Severity.LOOK, "The disk is too small for the life of blocks",
            f"The budget forces blocks out after {retention / 3600:.1f} h of {life / 3600:.0f} h.",
            "Raise store.budget_bytes, add a node, or accept a shorter store.ttl_seconds (kvshelf size).",
        )  # fmt: skip
    room = figures.get("budget.ssd", 0.0) - figures.get("used.ssd", 0.0)
    if figures.get("disk_size") and figures.get("disk_free", 0.0) < room:
        yield Finding(
            Severity.BAD, "The file system is smaller than the budget",
            f"{figures['disk_free'] / 2**30:.1f} GiB are free, {room / 2**30:.1f} GiB may still be taken.",
            "Lower store.budget_bytes, or free space: stores will be refused when it is full.",
        )  # fmt: skip


def _of_stores(figures: Mapping[str, float]) -> Iterator[Finding]:
    for kind in ("block", "snapshot"):
        outcomes = {
            name: figures.get(f"stores.{kind}.{name}", 0.0) for name in ("stored", "duplicate", "refused", "lost")
        }
        total = sum(outcomes.values())
        for outcome, advice in (
            ("refused", "Below the write floor or of a wrong size: engines store what the plan does not allow."),
            ("lost", "The tier had no room or did not answer: see health, and KvshelfStoresLost in docs/runbook.md."),
        ):
            if total >= 10 and outcomes[outcome] / total > _SHARE_TO_TELL:
                evidence = f"{outcomes[outcome]:.0f} of {total:.0f} {kind}s were {outcome}."
                yield Finding(Severity.LOOK, f"Stores are {outcome}", evidence, advice)


def _of_latency(figures: Mapping[str, float]) -> Iterator[Finding]:
    calls, quick = figures.get("calls.plan", 0.0), figures.get(f"took.plan.{_SLOW_PLAN_SECONDS:g}", 0.0)
    if calls >= 10 and quick / calls < 0.95:
        yield Finding(
            Severity.LOOK, "Plans are slow",
            f"{(calls - quick) / calls:.0%} took more than {_SLOW_PLAN_SECONDS * 1000:.0f} ms.",
            "See KvshelfSlowPlans in docs/runbook.md: the index, the pool, or the processor.",
        )  # fmt: skip


def _fine(figures: Mapping[str, float]) -> Finding:
    tokens = {source: figures.get(f"tokens.{source}", 0.0) for source in SOURCES}
    total = sum(tokens.values())
    saved = total - tokens["prefill"] - tokens["replay"]
    evidence = (
        f"{saved / total:.0%} of {total:.0f} prompt tokens were not run." if total else "No request has ended yet."
    )
    return Finding(
        Severity.FINE, "Nothing is wrong that its figures tell", evidence, "What is missed was never stored."
    )


def _looked_up(figures: Mapping[str, float], kind: str) -> tuple[float, dict[str, float]]:
    misses = {reason: figures.get(f"misses.{kind}.{reason}", 0.0) for reason in REASONS}
    return figures.get(f"hits.{kind}", 0.0) + sum(misses.values()), misses


def _share(part: float, whole: float) -> str:
    return f"{part:.0f} of {whole:.0f} look-ups ({part / whole:.0%})."


def _said(reason: str) -> str:
    return reason.replace("_", " ")
