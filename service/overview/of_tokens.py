"""Which tier serves most tokens, and why the others were run."""

from collections.abc import Iterator

from service.metrics.labels import MISSED, SOURCES
from service.overview import of_pool, space
from service.overview.finding import OVER, Finding, Level
from service.overview.situation import Situation
from service.overview.words import capital, count, duration, percent

_SOURCE_WORDS = {
    "hbm": "the engines' own HBM",
    "dram": "the DRAM pool",
    "ssd": "the SSD",
    "replay": "replay",
    "prefill": "prefill, which is no cache at all",
}
_CAUSE_WORDS = {
    "new_text": "new text, which no cache can save",
    "unused": "were there, but the engine did not use them",
    "never_stored": "never stored",
    "expired": "expired",
    "evicted": "evicted",
    "corrupt": "damaged",
    "tier_down": "out of reach",
    "refused": "refused for want of room",
    "superseded": "replaced by a later one of their session",
}
_SHARE_TO_LOOK, _SHARE_BAD, _REPLAYING_TO_LOOK = 0.05, 0.25, 0.25
_WENT = {
    "tier_down": "out of reach for a while, and the tier serves again",
    "evicted": "evicted before their time, and there is room again",
    "refused": "refused for want of room, and there is room again",
}
_LOST_SNAPSHOTS = ("expired", "evicted", "refused", "tier_down", "corrupt")
_FEW = 100
_ALWAYS_TOLD, _SHARE_TO_TELL = 2, 0.01
_REQUESTS_TO_JUDGE = 10


def which_tier(facts: Situation) -> tuple[str, Level]:
    """The first question's answer."""
    tokens = {source: facts.grew(f"tokens.{source}") for source in SOURCES}
    total = sum(tokens.values())
    if total <= 0:
        return f"No request has finished in {facts.window}.", "none"
    first, *others = sorted(tokens, key=lambda source: -tokens[source])
    rest = ", ".join(f"{source} {percent(tokens[source] / total)}" for source in others if tokens[source])
    share = f"{percent(tokens[first] / total)} of {count(total)} prompt tokens in {facts.window}"
    text = f"{capital(_SOURCE_WORDS[first])}: {share}{f'; {rest}' if rest else ''}.{_resumed(facts)}"
    return text, "look" if first == "prefill" else "good"


def _resumed(facts: Situation) -> str:
    """A snapshot stands for no token of its own, but without one a window is run again."""
    requests, resumed = facts.grew("requests"), facts.grew("resumes.snapshot")
    return f" {percent(resumed / requests)} of requests resumed with a snapshot from DRAM." if resumed else ""


def why_missed(facts: Situation) -> tuple[str, Level]:
    """The second question's answer; whether it is an ailment is for the findings to say."""
    total, missed = _missed(facts)
    if total <= 0:
        return f"No request has finished in {facts.window}.", "none"
    if not missed:
        return f"None did, of {count(total)} prompt tokens in {facts.window}.", "good"
    causes = sorted(missed, key=lambda cause: -missed[cause])
    told = [
        cause for place, cause in enumerate(causes) if place < _ALWAYS_TOLD or missed[cause] >= _SHARE_TO_TELL * total
    ]
    said = "; ".join(f"{percent(missed[cause] / total)} {_words(cause)}" for cause in told)
    return f"{percent(sum(missed.values()) / total)} of {count(total)} were run in {facts.window}: {said}.", "good"


def findings(facts: Situation) -> Iterator[Finding]:
    """What makes tokens miss that a cache could have saved."""
    total, missed = _missed(facts)
    if total <= 0:
        return
    if (never := _never_found(facts)) is not None:
        yield never
        return
    found = [one for cause in missed if (one := _of_cause(facts, cause, missed[cause] / total)) is not None]
    yield from found
    if not any(one.title.startswith("Snapshots") for one in found):
        yield from _of_replays(facts, missed)


def _missed(facts: Situation) -> tuple[float, dict[tuple[str, str], float]]:
    """All prompt tokens of the window, and by cause those that were run."""
    causes = {(kind, reason): facts.grew(f"missed.{kind}.{reason}") for kind, reasons in MISSED for reason in reasons}
    total = sum(facts.grew(f"tokens.{source}") for source in SOURCES)
    return total, {cause: tokens for cause, tokens in causes.items() if tokens > 0}


def _words(cause: tuple[str, str]) -> str:
    kind, reason = cause
    if kind == "none":
        return _CAUSE_WORDS[reason]
    if cause == ("block", "never_stored"):
        return "behind a gap: a block before ones that are there was never stored"
    if cause == ("snapshot", "never_stored"):
        return "run again, for no session stopped at that boundary"
    return f"for {kind}s that are {_CAUSE_WORDS[reason]}"


def _never_found(facts: Situation) -> Finding | None:
    stored, requests = facts.now.get("stores.block.stored", 0.0), facts.grew("requests")
    if stored < _FEW or requests < _REQUESTS_TO_JUDGE or facts.grew("hit_tokens") or facts.grew("tokens.hbm"):
        return None
    if any(facts.grew(f"missed.block.{reason}") for reason in dict(MISSED)["block"]):
        return None  # Keys of records that are gone were known, so keys match.
    return Finding(
        "bad", "misses", "What is stored is never found",
        f"{count(stored)} blocks were stored since the start, and {count(requests)} requests found none of them.",
        "Keys do not match: compare POST /v1/namespaces/NAME/hash with the engine's own hashes; look at"
        " GET /v1/namespaces for a second namespace; a date or an id at the start of each prompt does it, too.",
    )  # fmt: skip


def _of_cause(facts: Situation, cause: tuple[str, str], share: float) -> Finding | None:
    kind, reason = cause
    level: Level = "bad" if share >= _SHARE_BAD else "look"
    if reason in ("new_text", "superseded") or share < (0 if reason == "corrupt" else _SHARE_TO_LOOK):
        return None
    if reason in ("unused", "never_stored") and cause != ("block", "never_stored"):
        if share < _SHARE_BAD:
            return None
        level = "look"
    if reason == "corrupt":
        level = "bad"
    if _is_unknown(facts, cause):
        return None
    if reason in _WENT and _is_over(facts, kind, reason):
        level = "look"
    elif reason == "tier_down":
        level = "bad"
    title, advice = _advice(facts, cause)
    return Finding(level, "misses", title, f"{percent(share)} of prompt tokens were run for it.", advice)


def _advice(facts: Situation, cause: tuple[str, str]) -> tuple[str, str]:
    """The title of a cause, and what to do."""
    kind, reason = cause
    tier, group = ("ssd", "store") if kind == "block" else ("dram", "pool")
    what = "Blocks" if kind == "block" else "Snapshots"
    if kind == "none":
        return (
            "Engines do not use what is there",
            "See whether they run cold after failed fetches, set a byte limit, or take exact KV only.",
        )
    if reason in _WENT and _is_over(facts, kind, reason):
        return f"{what} were {_WENT[reason]}", OVER
    if reason == "expired":
        life = facts.now.get(f"ttl.{tier}", 0.0)
        return (
            f"{what} expire before they are asked for again",
            f"Their life is {duration(life)}: raise {group}.ttl_seconds if there is room.",
        )
    if cause == ("block", "never_stored"):
        return (
            "Gaps cut prompts off",
            "A block before stored ones is missing: see whether engines store every full block, from the first.",
        )
    if cause == ("snapshot", "never_stored"):
        return (
            "Snapshots are missing where prompts go on",
            "Store one at the last full block of the prompt and of the finished turn: unaligned ones are never found.",
        )
    return {
        "tier_down": (f"{what} are out of reach", "See health, and the tier's own log."),
        "evicted": (f"{what} are evicted before their time", _more_room(facts, kind)),
        "refused": (f"{what} are refused for want of room", _more_room(facts, kind)),
        "corrupt": (f"{what} are damaged", "See KvshelfCorruption in docs/runbook.md, and run kvshelf scrub."),
    }[reason]  # fmt: skip


def _serves(facts: Situation, kind: str) -> bool:
    """Whether the tier of a class serves now, whatever it did in the window."""
    return facts.now.get("up.ssd" if kind == "block" else "up.dram", 1.0) >= 1


def _is_unknown(facts: Situation, cause: tuple[str, str]) -> bool:
    """Of a tier that does not answer nobody knows whether it has room."""
    kind, reason = cause
    return reason in ("evicted", "refused") and not _serves(facts, kind)


def _is_over(facts: Situation, kind: str, reason: str) -> bool:
    """Whether what a tier lacked in the window, it lacks no more."""
    if reason == "tier_down":
        return _serves(facts, kind)
    return space.has_room(facts) if kind == "block" else of_pool.has_room(facts)


def _more_room(facts: Situation, kind: str) -> str:
    return space.more_room(facts) if kind == "block" else of_pool.more_room(facts)


def _of_replays(facts: Situation, missed: dict[tuple[str, str], float]) -> Iterator[Finding]:
    """A replay costs few tokens, so the cause of many is judged by its share of those run for want of a snapshot."""
    requests = facts.grew("requests")
    replays = facts.grew("resumes.bounded_replay") + facts.grew("resumes.exact_rebuild")
    of_snapshots = {cause: tokens for cause, tokens in missed.items() if cause[0] == "snapshot"}
    lost = {cause: tokens for cause, tokens in of_snapshots.items() if cause[1] in _LOST_SNAPSHOTS}
    if requests < _REQUESTS_TO_JUDGE or not lost:
        return
    cause = max(lost, key=lambda cause: lost[cause])
    share = lost[cause] / sum(of_snapshots.values())
    if share * replays / requests < _REPLAYING_TO_LOOK or _is_unknown(facts, cause):
        return
    title, advice = _advice(facts, cause)
    level: Level = "bad" if cause[1] == "tier_down" and not _serves(facts, "snapshot") else "look"
    evidence = f"{percent(share)} of the tokens that were run for want of a snapshot; {percent(replays / requests)} of"
    yield Finding(level, "misses", title, f"{evidence} requests ran some.", advice)
