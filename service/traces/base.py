"""A trace as the rest of the service sees it: requests in order of time, whatever file they came from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

MAX_BLOCK_ID = (1 << 63) - 1


class TraceError(ValueError):
    """A trace that cannot be used at all: no such file, damaged, of no known format, or nothing in it."""


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
        input_tokens: length of the prompt, at least 1.
        output_tokens: length of the answer.
        block_tokens: tokens a block.
        runs: the ids of the prompt's full blocks, ``input_tokens // block_tokens`` in all. Within a session (or within
            a trace that knows none) the same ids up to a place mean the same tokens up to there.
    """

    time_seconds: float
    session: str | None
    agent: str | None
    input_tokens: int
    output_tokens: int
    block_tokens: int
    runs: tuple[Run, ...]

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
    """A trace that has been read. All its requests have the same ``block_tokens``."""

    name: str
    format: str
    block_tokens: int
    requests: tuple[TraceRequest, ...]
    sessions: int
    bad_lines: int

    @property
    def input_tokens(self) -> int:
        """Prompt tokens of all requests."""
        return sum(request.input_tokens for request in self.requests)

    @property
    def duration_seconds(self) -> float:
        """From the start of the trace to its last request."""
        return self.requests[-1].time_seconds


OnBadLine = Callable[[BadLine], None]


class LineError(ValueError):
    """A line that is not what its format says; the text says what is wrong with it."""


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
