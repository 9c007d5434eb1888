"""What is wrong with a service beside the four questions."""

from collections.abc import Iterator

from service.overview.finding import Finding
from service.overview.situation import Situation
from service.overview.words import many, percent

_FEW_CALLS, _FEW_WRONG = 10, 5
_SHARE_TO_TELL, _SHARE_LOST = 0.05, 0.01
_SLOW_PLAN_SECONDS, _SLOW_SHARE = 0.25, 0.01
_REFUSALS = {
    "below_write_floor": "it is below the write floor of the plan that is named",
    "wrong_size": "it is not of its namespace's size",
    "wrong_class": "its namespace has no records of its class",
    "no_boundary": "it does not end at a block boundary",
    "wrong_shard": "its namespace has no such shard",
    "corrupt": "it does not match its checksum",
    "no_key": "its tenant has no key to seal it with",
}


def findings(facts: Situation) -> Iterator[Finding]:
    """Health, traffic, stores and latency."""
    for cause in facts.health.causes:
        advice = "See docs/runbook.md, KvshelfDegraded."
        yield Finding("bad", "health", "The service is degraded", f"{cause[:1].upper()}{cause[1:]}.", advice)
    yield from _of_traffic(facts)
    yield from _of_stores(facts)
    yield from _of_latency(facts)


def _of_traffic(facts: Situation) -> Iterator[Finding]:
    plans, requests = facts.grew("calls.plan"), facts.grew("requests")
    if not facts.now.get("calls.plan") and not facts.now.get("requests"):
        yield Finding(
            "none", "service", "Nobody asks", "No plan was asked for since the start.",
            "Point an engine's client here, or see whether its breaker is open (client.counters()).",
        )  # fmt: skip
    elif plans >= _FEW_CALLS and requests < plans / 2:
        yield Finding(
            "look", "service", "Requests end late",
            f"{many(plans, 'plan')} in {facts.window}, but only {many(requests, 'request')} ended.",
            "Release each plan when its request is done: until its lease ends it is not counted.",
        )  # fmt: skip


def _of_stores(facts: Situation) -> Iterator[Finding]:
    """What was not kept, but for want of room: that is a matter of the tier."""
    for kind in ("block", "snapshot"):
        outcomes = ("stored", "replaced", "duplicate", "refused", "lost")
        total = sum(facts.grew(f"stores.{kind}.{outcome}") for outcome in outcomes)
        for reason, why in _REFUSALS.items():
            refused = facts.grew(f"unkept.{kind}.{reason}")
            if total >= _FEW_CALLS and refused / total > _SHARE_TO_TELL:
                yield Finding(
                    "look", "service", f"{kind.capitalize()}s are refused: {reason.replace('_', ' ')}",
                    f"{refused:.0f} of {many(total, kind)} in {facts.window}.",
                    f"A record is refused so when {why}: see what the engine stores.",
                )  # fmt: skip
        lost = facts.grew(f"stores.{kind}.lost")
        if lost >= _FEW_WRONG and lost / total > _SHARE_LOST:
            yield Finding(
                "look", "service", f"{kind.capitalize()}s were lost on their way in",
                f"{lost:.0f} of {many(total, kind)} in {facts.window}: their tier did not answer.",
                "See health, and KvshelfStoresLost in docs/runbook.md.",
            )  # fmt: skip


def _of_latency(facts: Situation) -> Iterator[Finding]:
    calls, quick = facts.grew("calls.plan"), facts.grew(f"took.plan.{_SLOW_PLAN_SECONDS:g}")
    if calls - quick >= _FEW_WRONG and (calls - quick) / calls > _SLOW_SHARE:
        yield Finding(
            "look", "service", "Plans are slow",
            f"{percent((calls - quick) / calls)} took more than {_SLOW_PLAN_SECONDS * 1000:.0f} ms.",
            "See KvshelfSlowPlans in docs/runbook.md: the index, the pool, or the processor.",
        )  # fmt: skip
