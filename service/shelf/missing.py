"""Why tokens are run that a full cache would have saved: found when a plan is answered, counted when its request ends.

A prompt falls into three parts. Up to where its blocks reach, tokens are run only for want of a snapshot. From there
to the last boundary that a plan could use at all they are run because the first missing block cuts the chain, whatever
is stored behind it. What is left, at the end of every prompt, no cache can save.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from operator import is_, itemgetter
from typing import NamedTuple

from kvshelf_client.words import MissReason
from service.planner.base import ResumePlan
from service.shelf.fates import Fates
from storage.base import Entry, Hold, Miss

_REASON_OF = itemgetter(1)

Cause = tuple[str, str]
"""The labels of ``kvshelf_missed_tokens_total``: the class of what is missing (``none``: nothing), and why."""

NEW_TEXT: Cause = ("none", "new_text")
"""It was never stored, and neither was anything behind it: nobody has sent this text before."""

UNUSED: Cause = ("none", "unused")
"""It is there, and the engine did not use it: it ran cold, set a limit, takes exact KV only, or lacks an ability."""


class Missing(NamedTuple):
    """What stands between a request and the best that a full cache could do for it.

    ``best_tokens`` is the last boundary that a plan could use, ``reach_tokens`` the last one that the blocks reach.
    ``beyond`` says why they reach no further, ``below`` why tokens before that are run nevertheless.
    """

    best_tokens: int
    reach_tokens: int
    beyond: Cause
    below: Cause

    def tokens(self, planned: ResumePlan, ran: ResumePlan, why_less: Cause = UNUSED) -> dict[Cause, int]:
        """The tokens that were run, by cause; they add up to all that ``ran`` did not save.

        ``why_less`` says why ``ran`` saved less than what was planned, where it did.
        """
        saved = planned.run_start
        best = max(self.best_tokens, saved)
        reach = min(max(self.reach_tokens, saved), best)
        missed = Counter[Cause]()
        missed[NEW_TEXT] += ran.prompt_tokens - best
        missed[self.beyond] += best - reach
        missed[self.below] += reach - saved
        missed[why_less] += max(0, saved - ran.run_start)
        return missed


def why_blocks_end(fates: Fates, holds: Sequence[Hold], position: int) -> Cause:
    """Why the block at ``position`` of the holds, one a shard, is not there."""
    gap = next((one for hold in holds for one in hold.entries[position : position + 1] if isinstance(one, Miss)), None)
    if gap is None:
        return NEW_TEXT
    if gap.reason is not MissReason.NEVER_STORED:
        return "block", gap.reason.value
    fate = fates.of("block", gap.id)
    if fate is not None:
        return "block", fate
    # The second field of a miss is its reason, that of an entry none: so thousands of blocks take no loop.
    reasons = map(_REASON_OF, holds[0].entries[position:])
    was_seen = not all(map(is_, reasons, repeat(MissReason.NEVER_STORED)))
    return ("block", "never_stored") if was_seen else NEW_TEXT


def why_no_snapshot(fates: Fates, entries: Sequence[Entry | Miss]) -> str:
    """Why the snapshot of these entries, one a shard, cannot be used. At least one of them is a miss."""
    lost = next(one for one in entries if isinstance(one, Miss))
    is_known = lost.reason not in (MissReason.NEVER_STORED, MissReason.EVICTED)
    fate = None if is_known else fates.of("snapshot", lost.id)
    return str(fate or lost.reason.value)
