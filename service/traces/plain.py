"""kvshelf's own trace format: a header line, then one request a line. docs/trace-format.md describes it."""

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec

from service.traces.base import LineError, LineReader, Run, TraceRequest, cut_runs
from service.traces.fields import AnswerTokens, BlockTokens, Name, PromptTokens, RunPair, Seconds, decode_line

NAME = "kvshelf"
FIELDS = frozenset({"kvshelf_trace"})
VERSION = 1


class _Header(msgspec.Struct):
    kvshelf_trace: int
    block_tokens: BlockTokens
    ids: Annotated[str, msgspec.Meta(pattern="^(shared|session)$")] = "shared"


class _RequestLine(msgspec.Struct, rename={"time": "t", "input_tokens": "in", "output_tokens": "out"}):
    time: Seconds
    input_tokens: PromptTokens
    runs: list[RunPair]
    output_tokens: AnswerTokens = 0
    session: Name | None = None
    agent: Name | None = None
    compacted: bool = False


_header_decoder = msgspec.json.Decoder(_Header)
_decoder = msgspec.json.Decoder(_RequestLine)


def open_lines(first_line: bytes) -> LineReader:
    """A reader of the lines behind the header.

    Raises:
        LineError: the header is none, or of another version.
    """
    header = decode_line(_header_decoder, first_line)
    if header.kvshelf_trace != VERSION:
        raise LineError(f"version {header.kvshelf_trace} of the format; this kvshelf reads version {VERSION}")
    return _Reader(header).read_line


class _Reader:
    def __init__(self, header: _Header) -> None:
        self._block_tokens = header.block_tokens
        self._has_own_ids = header.ids == "session"
        self._known: dict[Run, Run] = {}

    def read_line(self, line: bytes) -> list[TraceRequest]:
        """The requests of one line, their times in seconds; raises LineError where it is none of this format."""
        request = decode_line(_decoder, line)
        if self._has_own_ids and request.session is None:
            raise LineError("no session, but the ids are each session's own")
        if request.agent is not None and request.session is None:
            raise LineError("an agent of no session")
        runs = [self._known.setdefault(run, run) for run in (Run(*pair) for pair in request.runs)]
        return [
            TraceRequest(
                time_seconds=request.time,
                session=request.session,
                agent=request.agent,
                scope=request.session if self._has_own_ids else None,
                input_tokens=request.input_tokens,
                output_tokens=request.output_tokens,
                block_tokens=self._block_tokens,
                runs=cut_runs(runs, request.input_tokens // self._block_tokens),
                is_compaction=request.compacted,
            )
        ]


def trace_lines(
    requests: Iterable[TraceRequest], block_tokens: int, about: dict[str, object] | None = None
) -> Iterator[bytes]:
    """Requests as the lines of this format; a trace reads the same from them.

    Args:
        requests: in order of time; the ids of all of them are the trace's, or of each its session's.
        block_tokens: tokens a block.
        about: more fields of the header, for people.
    """
    requests = iter(requests)
    first = next(requests, None)
    ids = "shared" if first is None or first.scope is None else "session"
    yield _line({"kvshelf_trace": VERSION, "block_tokens": block_tokens, "ids": ids, **(about or {})})
    if first is not None:
        yield _request_line(first)
    for request in requests:
        yield _request_line(request)


def _request_line(request: TraceRequest) -> bytes:
    fields: dict[str, Any] = {
        "t": request.time_seconds,
        "session": request.session,
        "agent": request.agent,
        "in": request.input_tokens,
        "out": request.output_tokens,
        "runs": request.runs,
        "compacted": request.is_compaction or None,
    }
    return _line({name: value for name, value in fields.items() if value is not None})


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"
