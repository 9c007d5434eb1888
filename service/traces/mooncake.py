"""The Mooncake format: one request a line, block ids shared by the whole trace.

``{"timestamp" (ms), "input_length", "output_length", "hash_ids"}``; other fields are ignored. An id stands for its
block and all before it. The format does not say its block size: it is 512 tokens.
"""

from typing import Annotated

import msgspec

from service.traces.base import MAX_BLOCK_ID, LineError, Run, TraceRequest, cut_runs

NAME = "mooncake"
BLOCK_TOKENS = 512
_MAX_TOKENS = 1 << 31
_MAX_MILLISECONDS = 10 * 365 * 86_400_000.0


class _RequestLine(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0, le=_MAX_MILLISECONDS)]
    input_length: Annotated[int, msgspec.Meta(ge=1, le=_MAX_TOKENS)]
    hash_ids: list[Annotated[int, msgspec.Meta(ge=0, le=MAX_BLOCK_ID)]]
    output_length: Annotated[int, msgspec.Meta(ge=0, le=_MAX_TOKENS)] = 0


_decoder = msgspec.json.Decoder(_RequestLine)


def read_line(line: bytes) -> list[TraceRequest]:
    """The one request of a line.

    Raises:
        LineError: the line is no request.
    """
    try:
        request = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LineError(str(error)) from None
    return [
        TraceRequest(
            time_seconds=request.timestamp / 1000,
            session=None,
            agent=None,
            input_tokens=request.input_length,
            output_tokens=request.output_length,
            block_tokens=BLOCK_TOKENS,
            runs=cut_runs(_runs_of(request.hash_ids), request.input_length // BLOCK_TOKENS),
        )
    ]


def _runs_of(ids: list[int]) -> list[Run]:
    """Write ids as runs."""
    runs: list[Run] = []
    for block_id in ids:
        if runs and block_id == runs[-1].first_id + runs[-1].length:
            runs[-1] = Run(runs[-1].first_id, runs[-1].length + 1)
        else:
            runs.append(Run(block_id, 1))
    return runs
