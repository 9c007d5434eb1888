"""A registered namespace: its fingerprint, its sizes, and how its keys and record ids are made."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat

from kvshelf_client.frames import KEY_BYTES
from kvshelf_client.hashing import bind_hashes, block_keys
from service.namespaces.errors import NamespaceError
from service.namespaces.spec import KVSHELF_SCHEME, NamespaceSpec
from service.planner.base import Layout
from storage.base import RecordId

NAMESPACE_ID_BYTES = 8
KEPT_KEY_BYTES = KEY_BYTES - NAMESPACE_ID_BYTES
"""How much of a block key is in a record's id, behind the namespace's."""
MAX_EXTRA_BYTES = 1 << 10

Buffer = bytes | bytearray | memoryview

_record_id = partial(tuple.__new__, RecordId)
"""An id of its fields, in half of the time: a prompt of a million tokens has 7,813."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """See the module. Sizes of one shard are what a record of it must have, to the byte."""

    name: str
    spec: NamespaceSpec
    fingerprint: bytes
    """32 bytes; the key before a prompt's first block."""
    layout: Layout
    """Sizes of all shards together, for the planner."""
    shard_block_bytes: int
    shard_snapshot_bytes: int

    @property
    def shards(self) -> int:
        """Tensor-parallel ranks that hold different bytes."""
        return self.spec.shards

    @property
    def namespace_id(self) -> bytes:
        """The first 8 bytes of the fingerprint: what all record ids of the namespace start with."""
        return self.fingerprint[:NAMESPACE_ID_BYTES]

    @property
    def hashes_per_block(self) -> int:
        """How many hashes a client sends for a block."""
        return self.spec.block_tokens // (self.spec.hash_block_tokens or self.spec.block_tokens)

    def keys_from_tokens(self, tokens: Buffer, extra: bytes = b"", *, after: bytes | None = None) -> list[bytes]:
        """Keys of all full blocks of a prompt given as raw u32 little-endian token ids.

        ``after`` is the key of the block before them, None where they begin the prompt.

        Raises:
            NamespaceError: the namespace goes by an engine's hashes, ``tokens`` is no whole number of u32, or
                ``extra`` is too long.
        """
        if self.spec.hash_scheme != KVSHELF_SCHEME:
            text = f"this namespace goes by {self.spec.hash_scheme!r}, which only the engine computes; send its hashes"
            raise NamespaceError("tokens", text)
        if len(extra) > MAX_EXTRA_BYTES:
            raise NamespaceError("extra", f"may take {MAX_EXTRA_BYTES} bytes, not {len(extra)}")
        try:
            return block_keys(after or self.fingerprint, memoryview(tokens), self.spec.block_tokens, extra)
        except ValueError as error:
            raise NamespaceError("tokens", str(error)) from None

    def keys_from_hashes(self, hashes: Sequence[bytes] | Buffer) -> list[bytes]:
        """Keys of all full blocks from a client's chained hashes, a list or one buffer of 32 bytes each.

        With ``kvshelf-sha256`` the hashes are the keys. An engine's are bound to this namespace, one of
        :attr:`hashes_per_block` each.

        Raises:
            NamespaceError: a hash has another length than 32 bytes.
        """
        listed = _split(hashes) if isinstance(hashes, bytes | bytearray | memoryview) else list(hashes)
        _check_lengths("hashes", listed)
        if self.spec.hash_scheme == KVSHELF_SCHEME:
            return listed
        return bind_hashes(self.fingerprint, listed, self.hashes_per_block)

    def record_id(self, block_key: bytes, shard: int = 0) -> RecordId:
        """The record of a block key and shard: 8 bytes of the fingerprint and 24 of the key."""
        return self.record_ids((block_key,), shard)[0]

    def record_ids(self, block_keys: Sequence[bytes], shard: int = 0) -> list[RecordId]:
        """As :meth:`record_id`, for many keys at once.

        Raises:
            NamespaceError: no such shard, or a key of another length than 32 bytes.
        """
        if not 0 <= shard < self.spec.shards:
            raise NamespaceError("shard", f"must be from 0 to {self.spec.shards - 1}, got {shard}")
        _check_lengths("key", block_keys)
        prefix = self.namespace_id
        kept = [prefix + key[:KEPT_KEY_BYTES] for key in block_keys]
        return list(map(_record_id, zip(kept, repeat(shard))))


def make_namespace(name: str, spec: NamespaceSpec) -> Namespace:
    """The namespace of a name and a spec; computes its sizes and its fingerprint."""
    layout = spec.profile.layout(spec.block_tokens)
    return Namespace(
        name=name,
        spec=spec,
        fingerprint=spec.fingerprint,
        layout=layout,
        shard_block_bytes=layout.block_bytes // spec.shards,
        shard_snapshot_bytes=layout.snapshot_bytes // spec.shards,
    )


def _split(buffer: Buffer) -> list[bytes]:
    data = bytes(buffer)
    if len(data) % KEY_BYTES:
        raise NamespaceError("hashes", f"have {KEY_BYTES} bytes each: {len(data)} bytes is no multiple of that")
    return [data[start : start + KEY_BYTES] for start in range(0, len(data), KEY_BYTES)]


def _check_lengths(field: str, keys: Sequence[bytes]) -> None:
    wrong = set(map(len, keys)) - {KEY_BYTES}
    if wrong:
        raise NamespaceError(field, f"must have {KEY_BYTES} bytes, got {min(wrong)}")
