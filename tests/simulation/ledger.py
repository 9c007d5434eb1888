"""What the service said that it kept, and the truth about it."""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from kvshelf_client.frames import FrameHeader, FrameKind, checksum_of
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
    is_sure: bool = True
    """False where the last word on it was not durable, or not heard: an earlier one may be there, or none."""


class Ledger:
    """Everything that was ever kept. It checks that no record is better than its truth."""

    def __init__(self) -> None:
        self._kept: dict[tuple[RecordClass, RecordId], Kept] = {}
        self._durable: dict[RecordId, float] = {}
        """Blocks that were acknowledged as durable and that nobody took away since, and until when they live."""
        self._lives_until: dict[RecordId, float] = {}
        self._damaged: set[RecordId] = set()
        """Blocks that were damaged on the medium since they were stored, which a duplicate does not notice."""
        self.acknowledged = 0
        """How many blocks were acknowledged as durable, the same one each time."""

    def settle(
        self,
        namespace: Namespace,
        header: FrameHeader,
        outcome: Outcome,
        payload: Payload,
        *,
        lives_until: float = 0.0,
        is_durable: bool = False,
        is_sure: bool = True,
    ) -> None:
        """Take note of what became of one record of a store.

        Args:
            namespace: the record's.
            header: what was sent ahead of it.
            outcome: what the service said.
            payload: what was sent.
            lives_until: until when a block lives that is stored now.
            is_durable: whether it was acknowledged as durable, in a tier that evicts nothing.
            is_sure: whether it is still there after a crash.
        """
        if outcome.outcome == "lost":
            self.unheard(namespace, header, payload)
        if (outcome.key, outcome.shard, int(outcome.record_class)) != (header.key, header.shard, int(header.kind)):
            raise AssertionError(f"{outcome} is of another record than {header}")
        if outcome.outcome not in ("stored", "replaced", "duplicate"):
            return
        record_id = namespace.record_id(header.key, header.shard)
        is_block = header.kind is FrameKind.BLOCK
        if is_block and outcome.outcome != "duplicate":
            self._damaged.discard(record_id)
            self._lives_until[record_id] = lives_until  # A duplicate renews it in memory alone, as a touch does.
        if is_durable and is_block and record_id not in self._damaged:
            self._durable[record_id] = self._lives_until.get(record_id, 0.0)
            self.acknowledged += 1
        if outcome.outcome == "duplicate":
            return
        kind = RecordClass(header.kind)
        truth = truth_of(payload, kind, header.key, header.shard)
        if header.length_bytes != len(payload) or header.checksum != checksum_of(payload):
            raise AssertionError(f"kept under a false header: {outcome}")
        if header.shard >= namespace.shards or header.end_tokens % namespace.layout.block_tokens:
            raise AssertionError(f"kept where no record can be: {outcome}")
        if outcome.provenance is None:
            raise AssertionError(f"{outcome} says no provenance")
        if outcome.provenance is Provenance.EXACT and truth != UNTAINTED:
            raise AssertionError(f"tainted KV passes for exact: {outcome}")
        self.note(kind, record_id, header.key, outcome.provenance, payload, is_sure=is_sure)

    def unheard(self, namespace: Namespace, header: FrameHeader, payload: Payload) -> None:
        """A record was sent, and nobody knows what became of it. It may be there, whole and under its own name."""
        is_one = header.shard < namespace.shards and header.length_bytes == len(payload)
        if is_one and header.checksum == checksum_of(payload):
            kind, record_id = RecordClass(header.kind), namespace.record_id(header.key, header.shard)
            self.note(kind, record_id, header.key, Provenance.REPLAYED, payload, is_sure=False)

    def gone(self, record_ids: Iterable[RecordId]) -> None:
        """Blocks were taken away: nothing is promised of them any more."""
        for record_id in record_ids:
            self._durable.pop(record_id, None)

    def damaged(self, record_id: RecordId) -> None:
        """A block was damaged on the medium."""
        self._damaged.add(record_id)
        self.gone([record_id])

    def note(
        self,
        kind: RecordClass,
        record_id: RecordId,
        key: bytes,
        provenance: Provenance,
        payload: Payload,
        *,
        is_sure: bool = True,
    ) -> None:
        """A record was kept."""
        truth = truth_of(payload, kind, key, record_id.shard)
        earlier = self._kept.get((kind, record_id))
        truths = (earlier.truths if earlier else frozenset()) | {truth}
        self._kept[kind, record_id] = Kept(key, provenance, truth, payload, truths, is_sure)

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
            if not kept.is_sure:
                continue
            if entry.provenance is Provenance.EXACT and kept.truth != UNTAINTED:
                raise AssertionError(f"{entry} is tainted")
            if entry.provenance is not kept.provenance:
                raise AssertionError(f"{entry} was kept as {kept.provenance}")
        return len(live)

    def check_durable(self, tier: Tier, now: float) -> int:
        """Every block that was acknowledged as durable is there; returns how many those are."""
        names = [record_id for record_id, until in self._durable.items() if now < until]
        lost = [found for found in tier.lookup(names) if not isinstance(found, Entry)]
        if lost:
            raise AssertionError(f"acknowledged as durable, and lost: {lost}")
        return len(names)

    def names(self, kind: RecordClass) -> list[RecordId]:
        """The ids of all records of a class that were kept for sure."""
        return [record_id for (of_kind, record_id), kept in self._kept.items() if of_kind is kind and kept.is_sure]

    def last(self, kind: RecordClass, record_id: RecordId) -> Kept:
        """A record as it was last kept; its payload is the very object that was handed to the service."""
        return self._kept[kind, record_id]
