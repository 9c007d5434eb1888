"""What the service said that it kept, and the truth about it."""

import struct
from typing import NamedTuple

from kvshelf_client.frames import FrameHeader, checksum_of
from kvshelf_client.words import Provenance, RecordClass
from service.namespaces import Namespace
from service.shelf.storing import Outcome
from storage.base import Entry, Payload, RecordId, Tier
from tests.simulation.engine import Tokens
from tests.simulation.payloads import UNTAINTED, truth_of


class Place:
    """A namespace, and the conversations held in it."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.prompts: list[Tokens] = [()]

    def keys_of(self, tokens: Tokens) -> list[bytes]:
        """The block keys of a prompt."""
        return self.namespace.keys_from_tokens(struct.pack(f"<{len(tokens)}I", *tokens))

    def bytes_of(self, kind: RecordClass) -> int:
        """The size of a record of one shard."""
        is_block = kind is RecordClass.BLOCK
        return self.namespace.shard_block_bytes if is_block else self.namespace.shard_snapshot_bytes


class Kept(NamedTuple):
    """A record as it was last kept, and every truth that was ever kept under its name."""

    key: bytes
    """The block key."""
    provenance: Provenance
    truth: int
    payload: Payload
    truths: frozenset[int]


class Ledger:
    """Everything that was ever kept. It checks that no record is better than its truth."""

    def __init__(self) -> None:
        self._kept: dict[tuple[RecordClass, RecordId], Kept] = {}

    def settle(self, namespace: Namespace, outcome: Outcome, payload: Payload) -> None:
        """Take note of what became of one record of a store."""
        if outcome.outcome not in ("stored", "replaced"):
            return
        header, kind = outcome.header, RecordClass(outcome.header.kind)
        truth = truth_of(payload, kind, header.key, header.shard)
        if header.length_bytes != len(payload) or header.checksum != checksum_of(payload):
            raise AssertionError(f"kept under a false header: {outcome}")
        if header.shard >= namespace.shards or header.end_tokens % namespace.layout.block_tokens:
            raise AssertionError(f"kept where no record can be: {outcome}")
        if outcome.provenance is None:
            raise AssertionError(f"{outcome} says no provenance")
        if outcome.provenance is Provenance.EXACT and truth != UNTAINTED:
            raise AssertionError(f"tainted KV passes for exact: {outcome}")
        self.note(kind, namespace.record_id(header.key, header.shard), header.key, outcome.provenance, payload)

    def note(
        self, kind: RecordClass, record_id: RecordId, key: bytes, provenance: Provenance, payload: Payload
    ) -> None:
        """A record was kept."""
        truth = truth_of(payload, kind, key, record_id.shard)
        earlier = self._kept.get((kind, record_id))
        truths = (earlier.truths if earlier else frozenset()) | {truth}
        self._kept[kind, record_id] = Kept(key, provenance, truth, payload, truths)

    def check(self, namespace: Namespace, header: FrameHeader, payload: bytes | bytearray) -> int:
        """The truth a fetched payload carries.

        Raises:
            AssertionError: it is not what was stored for that key and shard, or is passed off for better than it is.
        """
        kind = RecordClass(header.kind)
        truth = truth_of(payload, kind, header.key, header.shard)
        kept = self._kept.get((kind, namespace.record_id(header.key, header.shard)))
        if kept is None or truth not in kept.truths:
            raise AssertionError(f"{header} was never stored like that")
        if header.provenance is Provenance.EXACT and truth != UNTAINTED:
            raise AssertionError(f"tainted KV is sent as exact: {header}")
        return truth

    def check_tier(self, tier: Tier, kind: RecordClass) -> int:
        """Compare all that a tier still has with what was kept in it; returns how many records that were."""
        names = [record_id for of_kind, record_id in self._kept if of_kind is kind]
        live = [found for found in tier.lookup(names) if isinstance(found, Entry)]
        for entry in live:
            kept = self._kept[kind, entry.id]
            if entry.provenance is Provenance.EXACT and kept.truth != UNTAINTED:
                raise AssertionError(f"{entry} is tainted")
            if entry.provenance is not kept.provenance:
                raise AssertionError(f"{entry} was kept as {kept.provenance}")
        return len(live)

    def names(self, kind: RecordClass) -> list[RecordId]:
        """The ids of all records of a class that were ever kept."""
        return [record_id for of_kind, record_id in self._kept if of_kind is kind]

    def last(self, kind: RecordClass, record_id: RecordId) -> Kept:
        """A record as it was last kept; its payload is the very object that was handed to the service."""
        return self._kept[kind, record_id]
