"""What a replay has seen, as tables for a person."""

from service.cli.tables import milliseconds, share, size, table
from service.replay.replayer import Replayer
from service.replay.tally import LATENCIES, PERCENTILES, Tally


def describe(tally: Tally) -> str:
    """All tables, an empty line between them."""
    parts = [_tokens(tally), _sources(tally), _resumes(tally), _records(tally), _latencies(tally)]
    return "\n\n".join(part for part in parts if part)


def summary(tally: Tally) -> str:
    """One line of it, for a progress bar."""
    return f"{tally.requests:,} requests, {share(tally.hit_tokens, tally.prompt_tokens)} hit"


def live_summary(replayer: Replayer, started: float, now: float) -> str:
    """How a load test is going, in one line; ``started`` and ``now`` are of one clock."""
    ended = sum(part.requests for part in replayer.timeline.values())
    return f"{summary(replayer.tally)}, {ended / max(now - started, 1e-9):,.0f}/s, {replayer.under_way} under way"


def _tokens(tally: Tally) -> str:
    rows = [
        ("prompt", tally.prompt_tokens),
        ("hit (stored prefix)", tally.hit_tokens),
        ("hit, exact only", tally.exact_hit_tokens),
        ("matched (used by the plan)", tally.matched_tokens),
        ("replayed", tally.replayed_tokens),
    ]
    return table(
        ("tokens", "count", "of prompt"),
        [(name, f"{tokens:,}", share(tokens, tally.prompt_tokens)) for name, tokens in rows],
    )


def _sources(tally: Tally) -> str:
    return table(
        ("tokens by source", "count", "of prompt"),
        [(name, f"{tokens:,}", share(tokens, tally.prompt_tokens)) for name, tokens in tally.tokens_by_source.items()],
    )


def _resumes(tally: Tally) -> str:
    rows = [(mode, count) for mode, count in tally.resumes.items() if count]
    rows += [("(exact)", tally.exact_resumes), ("(by the fallback)", tally.fallbacks)]
    return table(
        ("resumes by mode", "requests", "share"),
        [(name, f"{count:,}", share(count, tally.requests)) for name, count in rows],
    )


def _records(tally: Tally) -> str:
    rows = [
        ("fetched", f"{tally.fetched_records:,}", size(tally.fetched_bytes)),
        ("stored", f"{tally.outcomes['stored'] + tally.outcomes['replaced']:,}", size(tally.stored_bytes)),
    ]
    rows += [(name, f"{n:,}", "") for name, n in tally.outcomes.items() if name not in ("stored", "replaced")]
    rows += [(f"missed while fetching: {reason}", f"{n:,}", "") for reason, n in tally.misses.items()]
    if tally.replans:
        rows.append(("planned again after a miss", f"{tally.replans:,}", ""))
    if tally.late_releases:
        rows.append(("leases over before their release", f"{tally.late_releases:,}", ""))
    return table(("records", "count", "bytes"), rows)


def _latencies(tally: Tally) -> str:
    names = [*(f"p{percent}" for percent in PERCENTILES), "max"]
    rows = []
    for name in LATENCIES:
        latency = tally.latency_seconds(name)
        rows.append((name, f"{len(tally.latencies[name]):,}", *(milliseconds(latency[each]) for each in names)))
    return table(("latency in ms", "calls", *names), rows)
