"""Which node a session's chain is placed on: rendezvous hashing. Pure, and the same in every process and language."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kvshelf_client.answers import Namespace
from kvshelf_client.frames import KEY_BYTES
from kvshelf_client.hashing import TOKEN_BYTES, block_keys

if TYPE_CHECKING:
    from typing_extensions import Buffer


def placed(nodes: Iterable[str], affinity: bytes) -> list[str]:
    """The nodes in the order in which they are asked for what goes by ``affinity``.

    Descending by ``SHA-256(node || 0x00 || affinity)``. A node that joins or leaves moves nothing between the others,
    and what it takes or leaves is spread over all of them.
    """

    def score(node: str) -> bytes:
        return hashlib.sha256(node.encode() + b"\0" + affinity).digest()

    return sorted(nodes, key=score, reverse=True)


def default_affinity(
    namespace: Namespace,
    tokens: "Buffer | None",
    hashes: "Sequence[bytes] | Buffer | None",
    extra: bytes = b"",
) -> bytes:
    """What a prompt is placed by when its caller names nothing: its first block's key, or first hash.

    A prompt that fills no block is placed by its tokens; there is nothing of it to find again.

    Raises:
        ValueError: ``tokens`` is no whole number of u32.
    """
    if tokens is not None:
        head = memoryview(tokens).cast("B")[: namespace.block_tokens * TOKEN_BYTES]
        keys = block_keys(namespace.fingerprint, head, namespace.block_tokens, extra)
        return keys[0] if keys else head.tobytes()
    if isinstance(hashes, Sequence) and not isinstance(hashes, (bytes, bytearray, memoryview)):
        return b"".join(hashes[:1])
    return bytes(memoryview(hashes or b"").cast("B")[:KEY_BYTES])
