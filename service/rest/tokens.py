"""From a request's body to block keys."""

import struct
from collections.abc import Sequence
from typing import Annotated

from fastapi import Query

from service.namespaces import MAX_EXTRA_BYTES, Namespace
from service.rest.problems import ProblemError

Extra = Annotated[
    str, Query(max_length=2 * MAX_EXTRA_BYTES, description="Hexadecimal bytes that go into every block's hash.")
]
"""The query parameter `extra` of every route that makes keys from tokens."""

TOKEN_BYTES = 4
HASH_BYTES = 32


def pack_tokens(tokens: Sequence[int]) -> bytearray:
    """Token ids as raw u32 little-endian; raises a 422 on an id that is none."""
    try:
        return bytearray(struct.pack(f"<{len(tokens)}I", *tokens))
    except struct.error:
        raise ProblemError(422, "tokens are whole numbers from 0 to 4294967295", field="body.tokens") from None


def keys_of_hashes(namespace: Namespace, hashes: Sequence[bytes] | bytearray, prompt_tokens: int) -> list[bytes]:
    """The block keys of a prompt that came as hashes, listed or one after the other in one buffer.

    Raises a 422 unless every full block has its hash.
    """
    count = len(hashes) // HASH_BYTES if isinstance(hashes, bytearray) else len(hashes)
    each = namespace.layout.block_tokens // namespace.hashes_per_block
    if count != prompt_tokens // each:
        full = prompt_tokens // each
        detail = f"a prompt of {prompt_tokens} tokens has {full} full blocks of {each}, got {count} hashes"
        raise ProblemError(422, detail, field="body")
    return namespace.keys_from_hashes(hashes)
