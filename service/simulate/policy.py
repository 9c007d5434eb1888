"""Which snapshots an engine stores: the policies that a simulation compares."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from service.traces.base import Run, Trace, TraceRequest, cut_runs
from service.traces.chain import common_blocks

NAMES = "last-block, prompt-and-turn, every-N (blocks) or none"


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    """A policy.

    Args:
        at_prompt_end: at the last full block of the prompt.
        at_turn_end: at the last full block of prompt and answer, together with the blocks that the answer filled.
        every_blocks: at each multiple of so many blocks that the run computed; 0 for none.
    """

    at_prompt_end: bool = False
    at_turn_end: bool = False
    every_blocks: int = 0

    def boundaries(self, floor_blocks: int, blocks: int) -> Sequence[int]:
        """How many blocks are before each snapshot of a prompt of ``blocks``, of which the run computed those from
        ``floor_blocks`` on.
        """
        if self.every_blocks:
            first = max(1, -(-floor_blocks // self.every_blocks))
            return range(first * self.every_blocks, blocks + 1, self.every_blocks)
        return [blocks] if self.at_prompt_end and blocks and blocks >= floor_blocks else []


LAST_BLOCK = SnapshotPolicy(at_prompt_end=True)
PROMPT_AND_TURN = SnapshotPolicy(at_prompt_end=True, at_turn_end=True)
NONE = SnapshotPolicy()


def policy_named(name: str) -> SnapshotPolicy:
    """The policy of a name; raises ValueError where there is none."""
    named = {"last-block": LAST_BLOCK, "prompt-and-turn": PROMPT_AND_TURN, "none": NONE}
    every = re.fullmatch(r"every-([1-9][0-9]{0,8})", name, re.ASCII)
    if every:
        return SnapshotPolicy(every_blocks=int(every[1]))
    if name not in named:
        raise ValueError(f"no snapshot policy {name!r}: {NAMES}")
    return named[name]


class Turns:
    """The blocks of finished turns: of a prompt and its answer.

    Where the next prompt of the line goes on from this one and is long enough, it is taken to hold the answer
    unchanged. Elsewhere nobody will ever ask for the answer's blocks again, and they get ids of their own.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._next: dict[int, int] = {}
        last: dict[tuple[str | None, str | None], int] = {}
        for number, request in enumerate(trace.requests):
            if request.session is not None:
                if request.line in last:
                    self._next[last[request.line]] = number
                last[request.line] = number

    def runs(self, number: int) -> tuple[Run, ...]:
        """The ids of the full blocks of a request's prompt and answer."""
        request = self._trace.requests[number]
        filled = (request.input_tokens + request.output_tokens) // request.block_tokens
        following = self._trace.requests[self._next[number]] if number in self._next else None
        if following is not None and _goes_on(request, following):
            return cut_runs(following.runs, filled)
        more = filled - request.full_blocks
        return (*request.runs, Run(-(number + 1) << 32, more)) if more else request.runs


def _goes_on(request: TraceRequest, following: TraceRequest) -> bool:
    is_long_enough = following.input_tokens >= request.input_tokens + request.output_tokens
    return is_long_enough and common_blocks(request.runs, following.runs) == request.full_blocks
