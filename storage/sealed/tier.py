"""The tier that seals: what it hands on is ciphertext, what it hands out is plain.

The number of the key that sealed a record is its label in the tier below. So a look-up knows, without reading, which
records can be opened. One that cannot, because its key was dropped or it was stored before its tenant had keys, is a
miss with reason ``evicted``, and gives way to the next write of its id.
"""

from collections.abc import Callable, Sequence

from kvshelf_client.frames import checksum_of
from kvshelf_client.words import MissReason
from storage.base import (
    UNKNOWN_CHECKSUM,
    Entry,
    Hold,
    Loaded,
    Miss,
    Page,
    Record,
    RecordId,
    Tier,
    TierObserver,
    Usage,
    Wiped,
    WriteOutcome,
    WriteResult,
)
from storage.sealed.hold import SealedHold
from storage.sealed.keys import NONCE_BYTES, SEAL_BYTES, TenantKeys
from storage.sealed.seal import Claims, seal, unseal

NAMESPACE_ID_BYTES = 8
_TOLD_DIGITS = 12


class SealedTier(Tier):
    """A tier whose payloads are sealed with the keys of their tenants. Thread-safe.

    Args:
        tier: keeps the sealed records. Closed together with this one.
        keys_of: the keys of the tenant of a namespace, by its id (the first bytes of every key); None: it has none,
            and then nothing of it is kept or found. Asked anew by each call, so that keys may come and go.
        random_bytes: so many random bytes, such as :func:`os.urandom`.
        observer: who is told of broken seals.
    """

    def __init__(
        self,
        tier: Tier,
        keys_of: Callable[[bytes], TenantKeys | None],
        random_bytes: Callable[[int], bytes],
        observer: TierObserver,
    ) -> None:
        self.name = tier.name
        self._tier = tier
        self._keys_of = keys_of
        self._random_bytes = random_bytes
        self._observer = observer

    @property
    def is_durable(self) -> bool:
        """See :meth:`Tier.is_durable`."""
        return self._tier.is_durable

    def lookup(self, ids: Sequence[RecordId]) -> list[Entry | Miss]:
        """See :meth:`Tier.lookup`. Checksums are unknown: they are of the plain payload, and sealed with it."""
        return self.outer(self._tier.lookup(ids))

    def hold(self, ids: Sequence[RecordId]) -> Hold:
        """See :meth:`Tier.hold`."""
        return SealedHold(self._tier.hold(ids), self.outer, self.open)

    def write(self, records: Sequence[Record], *, durable: bool) -> list[WriteResult]:
        """See :meth:`Tier.write`. A record of a tenant without keys is ``NO_KEY``."""
        judged = [self._judge(record) for record in records]
        results = iter(
            self._write(
                [
                    self._sealed(record, keys)
                    for record, keys in zip(records, judged, strict=True)
                    if isinstance(keys, TenantKeys)
                ],
                durable=durable,
            )
        )
        return [
            next(results) if isinstance(verdict, TenantKeys) else WriteResult(record.id, verdict)
            for record, verdict in zip(records, judged, strict=True)
        ]

    def touch(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.touch`."""
        return self._tier.touch([one.id for one in self.lookup(ids) if isinstance(one, Entry)])

    def delete(self, ids: Sequence[RecordId], *, cause: str = "deleted") -> int:
        """See :meth:`Tier.delete`. Takes no key."""
        return self._tier.delete(ids, cause=cause)

    def scan(self, prefix: bytes, cursor: bytes = b"", limit: int = 1024) -> Page:
        """See :meth:`Tier.scan`. Those that cannot be opened are there, too; lengths are of the sealed payloads."""
        return self._tier.scan(prefix, cursor, limit)

    def erase(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.erase`. Takes no key."""
        return self._tier.erase(ids)

    def wipe(self, cursor: int = 0) -> Wiped:
        """See :meth:`Tier.wipe`."""
        return self._tier.wipe(cursor)

    def maintain(self) -> None:
        """See :meth:`Tier.maintain`."""
        self._tier.maintain()

    def usage(self) -> Usage:
        """See :meth:`Tier.usage`. Bytes are of the sealed payloads."""
        return self._tier.usage()

    def is_up(self) -> bool:
        """See :meth:`Tier.is_up`."""
        return self._tier.is_up()

    def trouble(self) -> str | None:
        """See :meth:`Tier.trouble`."""
        return self._tier.trouble()

    def check_integrity(self) -> None:
        """See :meth:`Tier.check_integrity`."""
        self._tier.check_integrity()

    def close(self) -> None:
        """See :meth:`Tier.close`."""
        self._tier.close()

    def outer(self, found: Sequence[Entry | Miss]) -> list[Entry | Miss]:
        """What is said of records that the tier below has: those that cannot be opened are misses."""
        known: dict[bytes, TenantKeys | None] = {}
        answers: list[Entry | Miss] = []
        for one in found:
            if isinstance(one, Miss):
                answers.append(one)
                continue
            namespace = one.id.key[:NAMESPACE_ID_BYTES]
            if namespace not in known:
                known[namespace] = self._keys_of(namespace)
            keys = known[namespace]
            answers.append(_plain(one) if keys is not None and one.label in keys else _cannot_be_opened(one))
        return answers

    def open(self, loaded: Loaded | Miss) -> Loaded | Miss:
        """A record as it was before it was sealed."""
        if isinstance(loaded, Miss):
            return loaded
        entry = loaded.entry
        keys = self._keys_of(entry.id.key[:NAMESPACE_ID_BYTES])
        if keys is None or entry.label not in keys:
            return _cannot_be_opened(entry)
        plain = _plain(entry)
        claims = Claims(entry.id, entry.provenance, plain.length_bytes, entry.label, entry.supersedes)
        payload = unseal(keys[entry.label], claims, loaded.payload)
        if payload is None:
            return self._drop(entry)
        return Loaded(plain._replace(checksum=checksum_of(payload)), payload)

    def _judge(self, record: Record) -> TenantKeys | WriteOutcome:
        """The keys to seal a record with, or what becomes of it instead."""
        if checksum_of(record.payload) != record.checksum:
            return WriteOutcome.CORRUPT
        return self._keys_of(record.id.key[:NAMESPACE_ID_BYTES]) or WriteOutcome.NO_KEY

    def _write(self, sealed: list[Record], *, durable: bool) -> list[WriteResult]:
        """Write sealed records. What they are duplicates of and cannot be opened any more goes, and they are kept."""
        results = self._tier.write(sealed, durable=durable)
        there = self._tier.lookup([one.id for one in results if one.outcome is WriteOutcome.DUPLICATE])
        closed = {
            one.id
            for one, answer in zip(there, self.outer(there), strict=True)
            if isinstance(one, Entry) and isinstance(answer, Miss)
        }
        if not closed:
            return results
        self._tier.delete(list(closed))
        again = iter(self._tier.write([record for record in sealed if record.id in closed], durable=durable))
        return [next(again) if one.id in closed else one for one in results]

    def _sealed(self, record: Record, keys: TenantKeys) -> Record:
        claims = Claims(record.id, record.provenance, memoryview(record.payload).nbytes, keys.newest, record.supersedes)
        sealed = seal(keys[keys.newest], claims, record.payload, self._random_bytes(NONCE_BYTES))
        return record._replace(payload=sealed, checksum=checksum_of(sealed), label=keys.newest)

    def _drop(self, entry: Entry) -> Miss:
        """A seal that is broken although the tier below found its bytes sound: somebody changed the record."""
        self._observer.fault(self.name, "corrupt")
        self._observer.noticed(
            self.name, "seal_broken", {"key": entry.id.key.hex()[:_TOLD_DIGITS], "shard": entry.id.shard}
        )
        (now,) = self._tier.lookup([entry.id])
        if isinstance(now, Entry) and now.generation == entry.generation:
            self._tier.delete([entry.id], cause="corrupt")
        return Miss(entry.id, MissReason.CORRUPT)


def _plain(entry: Entry) -> Entry:
    """An entry of a sealed record as that of the plain one. Its label is the wrapper's own."""
    return entry._replace(length_bytes=entry.length_bytes - SEAL_BYTES, checksum=UNKNOWN_CHECKSUM, label=0)


def _cannot_be_opened(entry: Entry) -> Miss:
    return Miss(entry.id, MissReason.EVICTED)
