"""How the pool takes records in: look first, send bytes only where they are wanted, and settle races one by one."""

from collections.abc import Callable, Iterator, Sequence

from kvshelf_client.frames import checksum_of
from storage.base import Record, RecordId, TierObserver, WriteOutcome, WriteResult
from storage.clock import Clock
from storage.dram.ailment import Ailment
from storage.dram.header import Head, head_of
from storage.dram.ledger import Ledger
from storage.dram.link import LinkDownError
from storage.dram.values import ASK_RECORDS, Seen, Trouble, Values

ROUND_BYTES = 16 << 20
"""Payload bytes after which a round of writes is sent."""

_GENERATION_BYTES = 7
_GENERATION_MASK = (1 << 53) - 1


class PoolWriter:
    """Writes records and tells the ledger and the observer what became of them.

    Generations are random, 53 bits and odd (so never 0, and numbers in JSON, too): clients that share a pool, or come
    after its restart, need no counter that outlives them.

    Args:
        entropy: returns that many random bytes, as ``os.urandom``.
        on_full: told the bytes of a record that Redis had no memory for.
        part_bytes: payloads above this go in parts of this size.
    """

    def __init__(
        self,
        values: Values,
        ledger: Ledger,
        *,
        clock: Clock,
        observer: TierObserver,
        name: str,
        ttl_seconds: float,
        part_bytes: int,
        entropy: Callable[[int], bytes],
        on_full: Callable[[int], None],
    ) -> None:
        self._values = values
        self._ledger = ledger
        self._clock = clock
        self._observer = observer
        self._name = name
        self._ttl_seconds = ttl_seconds
        self._part_bytes = part_bytes
        self._entropy = entropy
        self._on_full = on_full

    def write(self, records: Sequence[Record]) -> list[WriteResult]:
        """See ``Tier.write``. After the first fault of the server the rest is ``TIER_DOWN`` without asking again."""
        are_sound = [checksum_of(record.payload) == record.checksum for record in records]
        sound = [record for record, is_sound in zip(records, are_sound, strict=True) if is_sound]
        written: list[WriteResult] = []
        try:
            for batch in _rounds(sound):
                written += self._write_round(batch)
        except LinkDownError:
            written += [WriteResult(record.id, WriteOutcome.TIER_DOWN) for record in sound[len(written) :]]
        results = iter(written)
        return [
            next(results) if is_sound else WriteResult(record.id, WriteOutcome.CORRUPT)
            for record, is_sound in zip(records, are_sound, strict=True)
        ]

    def _write_round(self, records: Sequence[Record]) -> list[WriteResult]:
        """Records of different ids: those that are new together, what is left over alone."""
        deadline, now = self._clock.monotonic() + self._ttl_seconds, self._clock.now()
        found = self._values.look([record.id for record in records])
        heads = [
            head_of(record, generation=self._generation(), created_at=now, part_bytes=self._part_bytes)
            for record in records
        ]
        outcomes = {n: WriteOutcome.TIER_DOWN for n, one in enumerate(found) if one is Trouble.AWAY}
        fresh = [n for n, one in enumerate(found) if one is Trouble.ABSENT and not heads[n].parts]
        stored = self._values.put([(records[n], heads[n]) for n in fresh])
        outcomes.update((n, one) for n, one in zip(fresh, stored, strict=True) if one is not WriteOutcome.DUPLICATE)
        there = [
            (n, one.head)
            for n, one in enumerate(found)
            if isinstance(one, Seen) and records[n].provenance <= one.head.provenance
        ]
        renewed = self._values.renew([(records[n].id, head) for n, head in there])
        outcomes.update(
            (n, WriteOutcome.DUPLICATE) for (n, _), is_there in zip(there, renewed, strict=True) if is_there
        )
        for n, record in enumerate(records):
            if n not in outcomes:
                outcomes[n], found[n] = self._write_alone(record, heads[n], found[n])
        return [self._result(record, heads[n], outcomes[n], found[n], deadline) for n, record in enumerate(records)]

    def _write_alone(self, record: Record, head: Head, found: Seen | Trouble) -> tuple[WriteOutcome, Seen | Trouble]:
        """A record in parts, one that replaces something, or one that somebody else got in the way of."""
        if not self._values.put_parts(record, head):
            return WriteOutcome.FULL, found
        outcome, found = self._values.settle(record, head)
        if outcome not in (WriteOutcome.STORED, WriteOutcome.REPLACED):
            self._values.drop_parts(record.id, head)
        return outcome, found

    def _result(
        self, record: Record, head: Head, outcome: WriteOutcome, found: Seen | Trouble, deadline: float
    ) -> WriteResult:
        kept = found.head if isinstance(found, Seen) else None
        if outcome in (WriteOutcome.STORED, WriteOutcome.REPLACED):
            if kept:
                self._ledger.dropped(record.id, "replaced", kept.length_bytes)
            elif found is Trouble.GARBAGE:
                self._observer.fault(self._name, "corrupt")
                self._ledger.dropped(record.id, "corrupt", 0)
            kept = head
            self._observer.moved(self._name, "write", head.length_bytes)
        elif outcome is WriteOutcome.FULL:
            self._observer.fault(self._name, Ailment.FULL.value)
            self._on_full(head.length_bytes)
        if kept:
            self._ledger.seen(record.id, kept, deadline)
        return WriteResult(record.id, outcome, kept.generation if kept else 0)

    def _generation(self) -> int:
        return int.from_bytes(self._entropy(_GENERATION_BYTES), "little") & _GENERATION_MASK | 1


def _rounds(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Cut a call into rounds that name no id twice and are neither too many records nor too many bytes."""
    batch: list[Record] = []
    ids: set[RecordId] = set()
    size = 0
    for record in records:
        length = memoryview(record.payload).nbytes
        if record.id in ids or len(batch) == ASK_RECORDS or (batch and size + length > ROUND_BYTES):
            yield batch
            batch, ids, size = [], set(), 0
        batch.append(record)
        ids.add(record.id)
        size += length
    if batch:
        yield batch
