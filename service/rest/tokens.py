"""Tokens as a request has them."""

import struct
from collections.abc import Sequence
from typing import Annotated

from fastapi import Query

from service.faces.problems import ProblemError
from service.namespaces import MAX_EXTRA_BYTES

Extra = Annotated[
    str, Query(max_length=2 * MAX_EXTRA_BYTES, description="Hexadecimal bytes that go into every block's hash.")
]
"""The query parameter `extra` of every route that makes keys from tokens."""


def pack_tokens(tokens: Sequence[int]) -> bytearray:
    """Token ids as raw u32 little-endian; raises a 422 on an id that is none."""
    try:
        return bytearray(struct.pack(f"<{len(tokens)}I", *tokens))
    except struct.error:
        raise ProblemError(422, "tokens are whole numbers from 0 to 4294967295", field="body.tokens") from None
