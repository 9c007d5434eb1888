"""The closed sets of label values. Every combination that can occur is there, at 0, from the first scrape."""

from typing import Literal, get_args

from kvshelf_client.local.wire import Refusal
from kvshelf_client.words import MissReason
from service.planner.base import Mode, Source

SOURCES = tuple(source.value for source in Source)
MODES = tuple(mode.value for mode in Mode)
REASONS = tuple(reason.value for reason in MissReason)
MISSED = (
    ("none", ("new_text", "unused")),
    ("block", (*REASONS, "refused")),
    ("snapshot", (*REASONS, "refused", "superseded")),
)
"""Of missed tokens: the class of what is missing, and why."""
CLASS_OF_TIER = {"ssd": "block", "dram": "snapshot"}
TIERS = tuple(CLASS_OF_TIER)
CLASSES = tuple(CLASS_OF_TIER.values())
OPERATIONS = ("read", "write", "carry", "memory")
CAUSES = ("expired", "budget", "deleted", "corrupt", "replaced", "superseded")
FAULTS = ("io", "timeout", "corrupt", "full", "unreachable", "denied", "refused")
BREAKER_STATES = ("closed", "open", "half_open")
HEALTH_STATES = ("ok", "degraded", "down")
DENIALS = ("missing", "unknown", "expired", "host")
REFUSED = ("busy", "share", "bytes", "connections", "slow", "malformed")
LOCAL_REFUSALS = tuple(reason.name.lower() for reason in Refusal)
VERBS = (
    "register", "hash", "plan", "fetch", "open", "store", "record", "touch", "release", "delete", "erase", "stats",
    "operate",
)  # fmt: skip
StoreOutcome = Literal["stored", "replaced", "duplicate", "refused", "lost"]
StoreReason = Literal[
    "none",
    "below_write_floor",
    "wrong_size",
    "wrong_class",
    "no_boundary",
    "wrong_shard",
    "corrupt",
    "full",
    "no_key",
    "tier_down",
]
STORE_OUTCOMES: tuple[str, ...] = get_args(StoreOutcome)
STORE_REASONS: tuple[str, ...] = get_args(StoreReason)
