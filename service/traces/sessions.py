"""The session format: one session a line, block ids local to the session, written as runs.

``{"id", "block_size", "requests": [{"t", "in", "out", "runs": [[first_id, count], ...], "agent"?}]}``; other fields are
ignored. ``t`` is in seconds; only the first ``in // block_size`` ids are full blocks.
"""

from typing import Annotated

import msgspec

from service.traces.base import MAX_BLOCK_ID, LineError, Run, TraceRequest, cut_runs

NAME = "sessions"
_MAX_TOKENS = 1 << 31
_MAX_SECONDS = 10 * 365 * 86_400.0

_Id = Annotated[int, msgspec.Meta(ge=0, le=MAX_BLOCK_ID)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=_MAX_TOKENS)]


class _RequestLine(msgspec.Struct, rename={"time": "t", "input_tokens": "in", "output_tokens": "out"}):
    time: Annotated[float, msgspec.Meta(ge=0, le=_MAX_SECONDS)]
    input_tokens: Annotated[int, msgspec.Meta(ge=1, le=_MAX_TOKENS)]
    runs: list[tuple[_Id, _Count]]
    output_tokens: Annotated[int, msgspec.Meta(ge=0, le=_MAX_TOKENS)] = 0
    agent: str | None = None


class _SessionLine(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    block_size: Annotated[int, msgspec.Meta(ge=1, le=65_536)]
    requests: list[_RequestLine]


_decoder = msgspec.json.Decoder(_SessionLine)


def read_line(line: bytes) -> list[TraceRequest]:
    """The requests of one line, in order of time; requests of one time keep their order.

    Raises:
        LineError: the line is no session.
    """
    try:
        session = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LineError(str(error)) from None
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
        input_tokens=line.input_tokens,
        output_tokens=line.output_tokens,
        block_tokens=session.block_size,
        runs=kept,
    )
