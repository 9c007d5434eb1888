"""The session format: one session a line, block ids local to the session, written as runs.

``{"id", "block_size", "requests": [{"t", "in", "out", "runs": [[first_id, count], ...], "agent"?}]}``; other fields are
ignored. ``t`` is in seconds; only the first ``in // block_size`` ids are full blocks.
"""

import msgspec

from service.traces.base import LineError, LineReader, Run, TraceRequest, cut_runs
from service.traces.fields import AnswerTokens, BlockTokens, Name, PromptTokens, RunPair, Seconds, decode_line

NAME = "sessions"
FIELDS = frozenset({"block_size", "requests"})


class _RequestLine(msgspec.Struct, rename={"time": "t", "input_tokens": "in", "output_tokens": "out"}):
    time: Seconds
    input_tokens: PromptTokens
    runs: list[RunPair]
    output_tokens: AnswerTokens = 0
    agent: str | None = None


class _SessionLine(msgspec.Struct):
    id: Name
    block_size: BlockTokens
    requests: list[_RequestLine]


_decoder = msgspec.json.Decoder(_SessionLine)


def open_lines(first_line: bytes) -> LineReader:  # noqa: ARG001 - the lines say everything themselves.
    """A reader of the lines, the first one too."""
    return _read_line


def _read_line(line: bytes) -> list[TraceRequest]:
    session = decode_line(_decoder, line)
    known: dict[Run, Run] = {}
    requests = [_request(session, index, known) for index in range(len(session.requests))]
    requests.sort(key=lambda request: request.time_seconds)
    return requests


def _request(session: _SessionLine, index: int, known: dict[Run, Run]) -> TraceRequest:
    """One request. ``known`` lets equal runs of a session share their memory."""
    line = session.requests[index]
    runs = [known.setdefault(run, run) for run in (Run(*pair) for pair in line.runs)]
    try:
        kept = cut_runs(runs, line.input_tokens // session.block_size)
    except LineError as error:
        raise LineError(f"session {session.id!r}, request {index + 1}: {error}") from None
    return TraceRequest(
        time_seconds=line.time,
        session=session.id,
        agent=line.agent,
        scope=session.id,
        input_tokens=line.input_tokens,
        output_tokens=line.output_tokens,
        block_tokens=session.block_size,
        runs=kept,
    )
