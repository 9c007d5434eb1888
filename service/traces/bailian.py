"""Alibaba's Bailian usage traces: one request a line, chats that go on from chats, 16-token blocks.

``{"chat_id", "parent_chat_id" (-1: none), "timestamp" (s), "input_length", "output_length", "hash_ids"}``; other fields
are ignored. The ids are shared by the whole trace. Requests that go back to the same first chat are one session, also
where that first chat was before the trace began. (alibaba-edu/qwen-bailian-usagetraces-anon describes the fields.)
"""

import msgspec

from service.traces.base import LineReader, TraceRequest, cut_runs, runs_of
from service.traces.fields import AnswerTokens, BlockId, PromptTokens, Seconds, decode_line

NAME = "bailian"
FIELDS = frozenset({"chat_id", "parent_chat_id", "timestamp", "input_length", "hash_ids"})
BLOCK_TOKENS = 16
_NO_PARENT = -1


class _RequestLine(msgspec.Struct):
    chat_id: int
    parent_chat_id: int
    timestamp: Seconds
    input_length: PromptTokens
    hash_ids: list[BlockId]
    output_length: AnswerTokens = 0


_decoder = msgspec.json.Decoder(_RequestLine)


def open_lines(first_line: bytes) -> LineReader:  # noqa: ARG001 - the lines say everything themselves.
    """A reader of the lines, the first one too. It remembers which chat goes back to which."""
    return _Reader().read_line


class _Reader:
    def __init__(self) -> None:
        self._first_chats: dict[int, int] = {}

    def read_line(self, line: bytes) -> list[TraceRequest]:
        """The requests of one line, their times in seconds; raises LineError where it is none of this format."""
        request = decode_line(_decoder, line)
        runs = cut_runs(runs_of(request.hash_ids), request.input_length // BLOCK_TOKENS)
        first = request.chat_id
        if request.parent_chat_id != _NO_PARENT:
            first = self._first_chats.setdefault(request.parent_chat_id, request.parent_chat_id)
        self._first_chats[request.chat_id] = first
        return [
            TraceRequest(
                time_seconds=request.timestamp,
                session=str(first),
                agent=None,
                scope=None,
                input_tokens=request.input_length,
                output_tokens=request.output_length,
                block_tokens=BLOCK_TOKENS,
                runs=runs,
            )
        ]
