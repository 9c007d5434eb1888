"""The Mooncake format: one request a line, block ids shared by the whole trace.

``{"timestamp" (ms), "input_length", "output_length", "hash_ids"}``; other fields are ignored. An id stands for its
block and all before it. The format does not say its block size: it is 512 tokens.
"""

from typing import Annotated

import msgspec

from service.traces.base import LineReader, TraceRequest, cut_runs, runs_of
from service.traces.fields import MAX_SECONDS, AnswerTokens, BlockId, PromptTokens, decode_line

NAME = "mooncake"
FIELDS = frozenset({"timestamp", "input_length", "hash_ids"})
BLOCK_TOKENS = 512


class _RequestLine(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS * 1000)]
    input_length: PromptTokens
    hash_ids: list[BlockId]
    output_length: AnswerTokens = 0


_decoder = msgspec.json.Decoder(_RequestLine)


def open_lines(first_line: bytes) -> LineReader:  # noqa: ARG001 - the lines say everything themselves.
    """A reader of the lines, the first one too."""
    return _read_line


def _read_line(line: bytes) -> list[TraceRequest]:
    request = decode_line(_decoder, line)
    return [
        TraceRequest(
            time_seconds=request.timestamp / 1000,
            session=None,
            agent=None,
            scope=None,
            input_tokens=request.input_length,
            output_tokens=request.output_length,
            block_tokens=BLOCK_TOKENS,
            runs=cut_runs(runs_of(request.hash_ids), request.input_length // BLOCK_TOKENS),
        )
    ]
