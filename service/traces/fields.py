"""What the lines of all formats are made of, within bounds."""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from service.traces.base import MAX_BLOCK_ID, LineError

MAX_SECONDS = 10 * 365 * 86_400.0
MAX_TOKENS = 1 << 31

BlockId = Annotated[int, Meta(ge=0, le=MAX_BLOCK_ID)]
RunPair = tuple[BlockId, Annotated[int, Meta(ge=1, le=MAX_TOKENS)]]
"""The first id of a run, and how many there are."""
Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
PromptTokens = Annotated[int, Meta(ge=1, le=MAX_TOKENS)]
AnswerTokens = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
BlockTokens = Annotated[int, Meta(ge=1, le=65_536)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]

Line = TypeVar("Line", bound=msgspec.Struct)


def decode_line(decoder: "msgspec.json.Decoder[Line]", line: bytes) -> Line:
    """The line as the decoder's type.

    Raises:
        LineError: it is no such line.
    """
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LineError(str(error)) from None
