"""What a store may claim: no record is better than the run that made it. A wrong ``exact`` poisons all that follows.

What became of the KV of a prompt in a run that goes on at ``write_floor``::

    0                         hx            h          write_floor
    |---- held and exact -----|--- held ----|-- loaded --|---- computed by the run: exact if the plan is -----> end
    |  blocks that end here may be stored   |  refused   |  blocks that end here, and snapshots, may be stored

Held KV may reach past ``write_floor``; what the run computed has then taken its place.
"""

from enum import StrEnum
from typing import NamedTuple

from kvshelf_client.words import Provenance, RecordClass
from service.planner.base import Layout, Replay, Request, ResumePlan


class Refusal(StrEnum):
    """Why a record may not be stored."""

    NO_BOUNDARY = "no_boundary"
    """It does not end at a positive multiple of ``block_tokens``."""
    BELOW_WRITE_FLOOR = "below_write_floor"
    """The run neither computed it nor found it whole in the engine's HBM: it was loaded, or replayed halfway."""


class Ran(NamedTuple):
    """The facts of the plan that ran, as far as they say what may be stored after it."""

    write_floor: int
    exact: bool
    held_tokens: int
    held_exact_tokens: int

    @classmethod
    def of(cls, plan: ResumePlan, request: Request) -> "Ran":
        """The facts of ``plan``, an answer to ``request``."""
        return cls(plan.write_floor, plan.exact, request.hbm_tokens, request.hbm_exact_tokens)

    def either(self, other: "Ran") -> "Ran":
        """The facts when one of two plans of a request ran and nobody knows which: all that both of them allow.

        Between the two floors one plan has computed what the other has found in HBM.
        """
        lower, upper = sorted((self, other))
        exact_tokens = min(lower.held_exact_tokens, upper.held_exact_tokens)
        return Ran(
            write_floor=upper.write_floor,
            exact=lower.exact and upper.exact,
            held_tokens=min(lower.held_tokens, upper.held_tokens),
            held_exact_tokens=exact_tokens if lower.exact else min(exact_tokens, lower.write_floor),
        )


def judge_store(
    layout: Layout, ran: Ran | None, record_class: RecordClass, end_tokens: int, claimed: Provenance
) -> Provenance | Refusal:
    """The provenance under which a record may be stored, never better than ``claimed``, or why it may not.

    Args:
        layout: the model's, at the namespace's block size.
        ran: the plan that the store names; None where it names none.
        record_class: block or snapshot.
        end_tokens: the end of the block, or the boundary of the snapshot.
        claimed: what the client says of the record.
    """
    if end_tokens <= 0 or end_tokens % layout.block_tokens:
        return Refusal.NO_BOUNDARY
    if ran is None:
        is_exact = layout.replay is not Replay.BOUNDED
    elif end_tokens > ran.write_floor or (record_class is RecordClass.SNAPSHOT and end_tokens == ran.write_floor):
        is_exact = ran.exact
    elif record_class is RecordClass.BLOCK and end_tokens <= ran.held_tokens:
        is_exact = end_tokens <= ran.held_exact_tokens
    else:
        return Refusal.BELOW_WRITE_FLOOR
    return claimed if is_exact else Provenance.REPLAYED
