"""Chained block hashes made from a trace's ids: two prompts share a hash exactly where they share a prefix.

``hash[i] = SHA-256(hash[i-1] || id of block i, u64 little-endian)``, and ``hash[-1] = SHA-256(domain || scope)``, so
that the ids of one scope mean nothing in another. Requests whose ids are the whole trace's share one root.
"""

import hashlib
import struct
from collections.abc import Sequence
from typing import NamedTuple

from kvshelf_client.hashing import bind_hashes
from service.traces.base import Run, TraceRequest

HASH_SCHEME = "kvshelf-trace-v1"
"""The name under which a namespace registers these hashes."""

_ROOT_DOMAIN = b"kvshelf trace v1\n"
_pack_id = struct.Struct("<Q").pack


class BlockKeys(NamedTuple):
    """The full blocks of a prompt: the chained hash that is sent, and the key it becomes in the namespace."""

    hashes: list[bytes]
    keys: list[bytes]


class _Line:
    """The last prompt of one line of a session, to take the common prefix from."""

    def __init__(self, root: bytes) -> None:
        self.root = root
        self.runs: tuple[Run, ...] = ()
        self.blocks = BlockKeys([], [])


class ChainHasher:
    """Hashes the prompts of a trace, one after the other.

    A request costs time in proportion to what differs from the one before it in its session (and sub-agent), and to the
    number of its runs. Memory: the keys of the last prompt of each such line, until :meth:`forget`.

    Args:
        fingerprint: of the namespace whose keys to make, 32 bytes.
    """

    def __init__(self, fingerprint: bytes) -> None:
        self._fingerprint = fingerprint
        self._lines: dict[tuple[str | None, str | None, str | None], _Line] = {}

    def blocks_of(self, request: TraceRequest) -> BlockKeys:
        """The hashes and keys of the request's full blocks. The lists are the hasher's: read them before the next."""
        name = (*request.line, request.scope)
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = _Line(_root_of(request.scope))
        same = common_blocks(line.runs, request.runs)
        hashes, keys = line.blocks
        del hashes[same:], keys[same:]
        _extend(hashes, line.root, request)
        keys += bind_hashes(self._fingerprint, hashes[same:])
        line.runs = request.runs
        return line.blocks

    def forget(self, session: str | None) -> None:
        """Let go of a session that is over."""
        for name in [name for name in self._lines if name[0] == session]:
            del self._lines[name]


def common_blocks(one: Sequence[Run], other: Sequence[Run]) -> int:
    """How many ids at the start of both are the same. Runs may be cut differently; ids decide."""
    blocks = 0
    left, right = iter(one), iter(other)
    a, b = next(left, None), next(right, None)
    while a is not None and b is not None and a.first_id == b.first_id:
        same = min(a.length, b.length)
        blocks += same
        a = Run(a.first_id + same, a.length - same) if a.length > same else next(left, None)
        b = Run(b.first_id + same, b.length - same) if b.length > same else next(right, None)
    return blocks


def _root_of(scope: str | None) -> bytes:
    salt = b"" if scope is None else b"session\n" + scope.encode()
    return hashlib.sha256(_ROOT_DOMAIN + salt).digest()


def _extend(hashes: list[bytes], root: bytes, request: TraceRequest) -> None:
    """Append the hashes of the request's blocks that are not there yet."""
    sha256 = hashlib.sha256
    last = hashes[-1] if hashes else root
    skip = len(hashes)
    for first_id, length in request.runs:
        if skip >= length:
            skip -= length
            continue
        for block_id in range(first_id + skip, first_id + length):
            last = sha256(last + _pack_id(block_id)).digest()
            hashes.append(last)
        skip = 0
