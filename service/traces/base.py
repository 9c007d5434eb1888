"""A trace as the rest of the service sees it: requests in order of time, whatever file they came from."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

MAX_BLOCK_ID = (1 << 63) - 1


class TraceError(ValueError):
    """A trace that cannot be used: no such file, damaged, of no known format, empty, or strictly read and bad."""


class BadLine(NamedTuple):
    """A line that was left out, and why. Lines count from 1."""

    number: int
    reason: str


class Run(NamedTuple):
    """The block ids ``first_id, first_id + 1, ...``, ``length`` of them, at least one."""

    first_id: int
    length: int


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace.

    Args:
        time_seconds: when it was sent, from the start of the trace.
        session: the session it belongs to, or None where the trace knows none.
        agent: the sub-agent of the session that sent it, or None for the session's main line.
        scope: whose ids they are: a session's own, or None for those that the whole trace shares. Within a scope the
            same ids up to a place mean the same tokens up to there.
        input_tokens: length of the prompt, at least 1.
        output_tokens: length of the answer.
        block_tokens: tokens a block.
        runs: the ids of the prompt's full blocks, ``input_tokens // block_tokens`` in all.
        is_compaction: the trace says that the line's history was rewritten for this prompt.
    """

    time_seconds: float
    session: str | None
    agent: str | None
    scope: str | None
    input_tokens: int
    output_tokens: int
    block_tokens: int
    runs: tuple[Run, ...]
    is_compaction: bool = False

    @property
    def line(self) -> tuple[str | None, str | None]:
        """The session and sub-agent: one line of prompts, each of which mostly goes on from the one before."""
        return self.session, self.agent

    @property
    def full_blocks(self) -> int:
        """How many full blocks the prompt has."""
        return self.input_tokens // self.block_tokens

    def block_ids(self) -> Iterator[int]:
        """The ids of the full blocks, in order."""
        for first_id, length in self.runs:
            yield from range(first_id, first_id + length)


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace that has been read. All its requests have the same ``block_tokens``.

    ``generated`` is what the file says of how it was made up; None where it claims to be measured.
    """

    name: str
    format: str
    block_tokens: int
    requests: tuple[TraceRequest, ...]
    sessions: int
    bad_lines: int
    generated: object | None = None

    @property
    def input_tokens(self) -> int:
        """Prompt tokens of all requests."""
        return sum(request.input_tokens for request in self.requests)

    @property
    def duration_seconds(self) -> float:
        """From the start of the trace to its last request."""
        return self.requests[-1].time_seconds


OnBadLine = Callable[[BadLine], None]
LineReader = Callable[[bytes], list[TraceRequest]]
"""Makes the requests of one line, in order of time; raises LineError where the line is none of its format's."""


class LineError(ValueError):
    """A line that is not what its format says; the text says what is wrong with it."""


def runs_of(ids: Iterable[int]) -> list[Run]:
    """Block ids, written as runs."""
    runs: list[Run] = []
    first_id, length = 0, 0
    for block_id in ids:
        if length and block_id == first_id + length:
            length += 1
            continue
        if length:
            runs.append(Run(first_id, length))
        first_id, length = block_id, 1
    if length:
        runs.append(Run(first_id, length))
    return runs


def cut_runs(runs: "list[Run] | tuple[Run, ...]", blocks: int) -> tuple[Run, ...]:
    """The first ``blocks`` ids of ``runs``.

    Raises:
        LineError: there are fewer.
    """
    kept: list[Run] = []
    missing = blocks
    for run in runs:
        if not missing:
            break
        kept.append(run if run.length <= missing else Run(run.first_id, missing))
        missing -= kept[-1].length
    if missing:
        raise LineError(f"{blocks} full blocks but only {blocks - missing} block ids")
    return tuple(kept)
