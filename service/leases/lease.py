"""A lease: one answered plan, what it holds, and which of its two plans is being run."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kvshelf_client.words import MissReason
from service.namespaces import Namespace
from service.planner import Ran
from service.planner.base import ResumePlan
from service.shelf.missing import Missing
from storage.base import Hold


class RanPlan(StrEnum):
    """Which plan of a lease a request ran, as the engine reports at release."""

    PLAN = "plan"
    FALLBACK = "fallback"
    COLD = "cold"


RequestKey = tuple[str | None, bytes, str]
"""What a request is known by: whose it is, its namespace's fingerprint, its request id."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A plan under its own id. A store names the id of the plan that ran."""

    plan_id: str
    plan: ResumePlan


class PlanFacts(NamedTuple):
    """What is remembered of a plan for the stores that name it: its namespace's fingerprint, what its run may claim."""

    namespace: bytes
    ran: Ran


@dataclass(slots=True)
class Lease:
    """Records held for one request, all shards of them, until ``expires_at`` (monotonic seconds).

    ``keys`` are the block keys of all that the plan or its fallback uses, from the prompt's start: their life is
    renewed when the request ends. ``blocks`` has a hold a shard, each with the blocks from ``first_block`` on, and is
    empty where no block is loaded; ``snapshot`` holds the primary plan's snapshot, one record a shard.
    ``missing`` says why it saves no more, ``why_lost`` why its snapshot was gone when it was fetched, if it was.
    ``owner`` is the tenant that asked for the plan, None where there are no tenants; for others it does not exist.
    """

    lease_id: str
    request_id: str
    namespace: Namespace
    primary: Answer
    fallback: Answer | None
    hit_tokens: int
    ttl_seconds: float
    keys: Sequence[bytes] = ()
    blocks: tuple[Hold, ...] = ()
    first_block: int = 0
    snapshot: Hold | None = None
    expires_at: float = 0.0
    users: int = 0
    closed: bool = False
    fell_back: bool = False
    was_read: bool = False
    owner: str | None = None
    missing: Missing | None = None
    why_lost: MissReason | None = None

    @property
    def request_key(self) -> RequestKey:
        """What its request is known by."""
        return self.owner, self.namespace.fingerprint, self.request_id

    @property
    def records(self) -> int:
        """How many records it holds."""
        return sum(len(hold.entries) for hold in self._holds())

    @property
    def is_unread(self) -> bool:
        """Whether it holds something that nobody has begun to fetch."""
        return not self.was_read and self.records > 0

    @property
    def weight(self) -> int:
        """What it counts for against the bound on all leases: records held or keys remembered, whichever are more."""
        return max(self.records, len(self.keys))

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The plan, and its fallback where it has one."""
        return (self.primary,) if self.fallback is None else (self.primary, self.fallback)

    @property
    def current(self) -> Answer:
        """The plan in force: the fallback once any shard's snapshot was found gone."""
        return self.fallback if self.fell_back and self.fallback is not None else self.primary

    def let_go(self) -> None:
        """Release what is held."""
        for hold in self._holds():
            hold.release()
        self.blocks, self.snapshot = (), None

    def _holds(self) -> tuple[Hold, ...]:
        return self.blocks if self.snapshot is None else (*self.blocks, self.snapshot)
