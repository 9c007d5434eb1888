"""Block keys: the SHA-256 chain over token blocks, and the namespace fingerprint it starts from.

``key[i] = SHA-256(key[i-1] || token ids of block i as u32 little-endian || extra)`` with ``key[-1]`` = the namespace's
fingerprint. Only full blocks have a key.
"""

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence

from kvshelf_client.frames import check_key

TOKEN_BYTES = 4
_FINGERPRINT_DOMAIN = b"kvshelf namespace v1\n"


def namespace_fingerprint(fields: Mapping[str, str | int]) -> bytes:
    """SHA-256 (32 bytes) over the canonical encoding of a namespace's fields.

    The encoding is the JSON object with sorted keys, no white space and ASCII escapes, behind a domain line.
    """
    encoded = json.dumps(dict(fields), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(_FINGERPRINT_DOMAIN + encoded.encode("ascii")).digest()


def block_keys(fingerprint: bytes, tokens: bytes | memoryview, block_tokens: int, extra: bytes = b"") -> list[bytes]:
    """The keys of all full blocks of a prompt.

    Args:
        fingerprint: the namespace's fingerprint, 32 bytes.
        tokens: token ids as raw u32 little-endian; the length must be a multiple of 4 bytes.
        block_tokens: tokens a block, at least 1.
        extra: bytes that go into every block's hash, such as an adapter's or an image's digest.

    Raises:
        ValueError: ``tokens`` is no whole number of u32, ``block_tokens`` is below 1, or the fingerprint is of
            another length.
    """
    check_key(fingerprint, "fingerprint")
    view = memoryview(tokens).cast("B")
    if len(view) % TOKEN_BYTES:
        raise ValueError(f"tokens are u32 little-endian: {len(view)} bytes is no multiple of {TOKEN_BYTES}")
    if block_tokens < 1:
        raise ValueError(f"block_tokens must be at least 1, got {block_tokens}")
    size = block_tokens * TOKEN_BYTES
    blocks = struct.iter_unpack(f"{size}s", view[: len(view) // size * size])
    # A copy of a digest is made in less time than a new one.
    fresh, keys, key = hashlib.sha256(), list[bytes](), bytes(fingerprint)
    for (block,) in blocks:
        digest = fresh.copy()
        digest.update(key + block + extra)
        key = digest.digest()
        keys.append(key)
    return keys


def bind_hashes(fingerprint: bytes, hashes: Sequence[bytes], hashes_per_block: int = 1) -> list[bytes]:
    """Block keys from an engine's own chained hashes.

    The hash at a block's last sub-block stands for the whole prefix; binding it to the namespace keeps two namespaces
    with equal hashes apart. Trailing sub-blocks that fill no block are left out.

    Args:
        fingerprint: the namespace's fingerprint, 32 bytes.
        hashes: one chained hash a sub-block of ``hash_block_tokens`` tokens, in order.
        hashes_per_block: ``block_tokens // hash_block_tokens``, at least 1.

    Raises:
        ValueError: the fingerprint or a hash is of another length than 32 bytes, or ``hashes_per_block`` is below 1.
    """
    check_key(fingerprint, "fingerprint")
    if hashes_per_block < 1:
        raise ValueError(f"hashes_per_block must be at least 1, got {hashes_per_block}")
    for index, each in enumerate(hashes):
        check_key(each, f"hashes[{index}]")
    sha256 = hashlib.sha256
    return [
        sha256(fingerprint + hashes[last]).digest()
        for last in range(hashes_per_block - 1, len(hashes), hashes_per_block)
    ]
