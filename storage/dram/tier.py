"""The DRAM pool: records as plain values in a Redis that keeps nothing on disk.

Redis bounds the memory (``maxmemory`` with ``volatile-ttl`` or ``allkeys-lru``) and ends lives: a record's expiry is
its key's, set by a write and by every touch. So a look-up is one ranged read of the header, a touch is one ``PEXPIRE``,
and service hosts whose clocks disagree still agree on what lives. The clock that is injected dates records, and tells
a record that expired from one that was evicted once it is gone; it ends no life.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from kvshelf_client.frames import checksum_of
from kvshelf_client.words import MissReason
from storage.base import (
    Entry,
    Hold,
    Loaded,
    Miss,
    OnArrival,
    Page,
    Payload,
    Record,
    RecordId,
    SilentObserver,
    Tier,
    TierAwayError,
    TierObserver,
    Usage,
    WriteOutcome,
    WriteResult,
)
from storage.clock import Clock, SystemClock
from storage.dram.ailment import Ailment
from storage.dram.arriving import Arriving, may_stand_for
from storage.dram.header import Head
from storage.dram.hold import PoolHold
from storage.dram.ledger import Ledger
from storage.dram.link import LinkDownError
from storage.dram.linking import link_to
from storage.dram.memory import ServerMemory
from storage.dram.place import pool_place
from storage.dram.quotas import Quotas
from storage.dram.values import ASK_RECORDS, Seen, Trouble, Values
from storage.dram.writer import PoolWriter
from storage.ghosts import reason_of
from storage.integrity import expect_equal

READ_ROUND_BYTES = 8 << 20
"""Payload bytes asked for in one round of reads."""

MAINTAIN_RECORDS = 256
"""Known records one step of upkeep looks after."""

_Item = TypeVar("_Item")


class RedisTier(Tier):
    """Records in Redis 6.2 or later. Nothing is sent before the first call, so it may be made while Redis is away.

    Holds are best effort: a read finds what is there by then. Usage is of what this process stored or saw, since Redis
    counts no payloads: of records other processes store it learns by looking them up. A Redis that turns out to be
    read-only, as a master that was demoted, is read from, and written to again some seconds later.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``; ``redis+sentinel://`` or ``redis+cluster://`` with
            several hosts (``rediss+``, too). With credentials if need be; they show up nowhere.
        clock: what time it is.
        ttl_seconds: life after the last use, more than 0.
        observer: who is told of it.
        name: the tier's metric label.
        prefix: what every key of this pool starts with.
        timeout_seconds: longest wait for Redis in one round, see :class:`storage.dram.link.RedisLink`. There are no
            retries: a call that waits in vain answers ``TIER_DOWN``.
        max_connections: most connections open at a time; as many as threads call.
        part_bytes: payloads above this are stored in parts of this size.
        known_records: how many records are known at a time, for usage and for the reasons of misses.
        budgets: bytes of owners that have their own, and under ``""`` those of all others together; none by default.
            They are kept to by what this process stored or saw, within a call's worth: what other processes stored, or
            what was there before it started, counts from when it is looked up.
        entropy: random bytes for generations.
        jitter: in [0, 1), for the breakers of a cluster's nodes.

    Raises:
        ValueError: a number is out of its range, or the URL is no Redis URL.
    """

    def __init__(
        self,
        *,
        url: str,
        clock: Clock,
        ttl_seconds: float,
        observer: TierObserver | None = None,
        name: str = "dram",
        prefix: str = "kvshelf:",
        timeout_seconds: float = 0.2,
        max_connections: int = 32,
        part_bytes: int = 8 << 20,
        known_records: int = 65_536,
        budgets: Mapping[str, int] | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
        jitter: Callable[[], float] = lambda: 0.0,
    ) -> None:
        if min(ttl_seconds, timeout_seconds, max_connections, part_bytes) <= 0:
            raise ValueError("ttl_seconds, timeout_seconds, max_connections and part_bytes must be above 0")
        self.name = name
        self._clock = clock
        self._ttl_seconds = ttl_seconds
        self._observer = observer or SilentObserver()
        self._link = link_to(
            pool_place(url),
            clock=SystemClock(),  # Sockets wait in real time, whatever clock dates the records.
            timeout_seconds=timeout_seconds,
            max_connections=max_connections,
            on_fault=lambda ailment: self._observer.fault(name, ailment.value),
            jitter=jitter,
        )
        self._quotas = _quotas(budgets, known_records)
        self._ledger = Ledger(clock=clock, observer=self._observer, name=name, limit=known_records, quotas=self._quotas)
        self._values = Values(self._link, prefix=prefix, ttl_seconds=ttl_seconds)
        self._memory = ServerMemory(self._link, clock)
        self._writer = PoolWriter(
            self._values,
            self._ledger,
            clock=clock,
            observer=self._observer,
            name=name,
            ttl_seconds=ttl_seconds,
            part_bytes=part_bytes,
            entropy=entropy,
            on_full=self._memory.refused,
        )
        self._is_closed = False

    def __repr__(self) -> str:
        return f"RedisTier({self._link.where})"

    @property
    def is_durable(self) -> bool:
        """False: the pool is memory."""
        return False

    def lookup(self, ids: Sequence[RecordId]) -> list[Entry | Miss]:
        """See :meth:`Tier.lookup`. Payloads are not looked at: a record with a bad one is found out by a read."""
        found: list[Entry | Miss] = []
        try:
            for batch in _cut(ids, ASK_RECORDS):
                found += self._look(batch)
        except LinkDownError:
            found += _down(ids[len(found) :])
        return found

    def hold(self, ids: Sequence[RecordId]) -> Hold:
        """See :meth:`Tier.hold`. Best effort: nothing is held, reads answer a miss for what has gone."""
        return PoolHold(self.lookup(ids), self._load, self._use)

    def write(self, records: Sequence[Record], *, durable: bool) -> list[WriteResult]:  # noqa: ARG002 - memory never is
        """See :meth:`Tier.write`. One commit a record: Redis has none for all of them that would be worth its price."""
        if self._link.is_read_only:
            return [WriteResult(record.id, WriteOutcome.TIER_DOWN) for record in records]
        if self._quotas is None:
            return self._writer.write(records)
        return self._write_within(self._quotas, records)

    def touch(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.touch`. One round for records that are known; others are looked up first."""
        count = 0
        try:
            for batch in _cut([] if self._link.is_read_only else ids, ASK_RECORDS):
                deadline = self._clock.monotonic() + self._ttl_seconds
                live = self._heads(batch)
                renewed = self._values.renew(live)
                for (record_id, head), is_there in zip(live, renewed, strict=True):
                    if is_there:
                        self._ledger.seen(record_id, head, deadline)
                    else:
                        self._ledger.absent(record_id)
                count += sum(renewed)
        except LinkDownError:
            pass  # what was not renewed lives its old life; the link has told the observer
        return count

    def use(self, hold: Hold, start: int, end: int, on_arrival: OnArrival | None = None) -> list[Loaded | Miss]:
        """See :meth:`Tier.use`. It costs no rounds beyond those of the read."""
        return hold.use(start, end, on_arrival) if isinstance(hold, PoolHold) else super().use(hold, start, end)

    def delete(self, ids: Sequence[RecordId], *, cause: str = "deleted") -> int:
        """See :meth:`Tier.delete`. While Redis is away nothing is deleted, and 0 says so."""
        count = 0
        try:
            for batch in _cut([] if self._link.is_read_only else list(dict.fromkeys(ids)), ASK_RECORDS):
                looked = zip(batch, self._values.look(batch), strict=True)
                live = [(record_id, one.head) for record_id, one in looked if isinstance(one, Seen)]
                for (record_id, head), was_there in zip(live, self._values.unlink(live), strict=True):
                    if was_there:
                        self._ledger.dropped(record_id, cause, head.length_bytes)
                        count += 1
        except LinkDownError:
            pass  # the link has told the observer
        return count

    def scan(self, prefix: bytes, cursor: bytes = b"", limit: int = 1024) -> Page:
        """See :meth:`Tier.scan`. Goes through all names of the server, whatever the prefix; one may come twice."""
        try:
            following, ids = self._values.scan(prefix, int(cursor or b"0"), limit)
            found = [one for batch in _cut(ids, ASK_RECORDS) for one in self._look(batch)]
        except LinkDownError as error:
            raise TierAwayError(str(error)) from None
        return Page([one for one in found if isinstance(one, Entry)], b"%d" % following if following else None)

    def erase(self, ids: Sequence[RecordId]) -> int:
        """See :meth:`Tier.erase`. What the server does with the memory is its own affair."""
        count = self.delete(ids)
        if not self.is_up():
            raise TierAwayError(f"the {self.name} tier does not erase: {self.trouble() or 'it is away'}")
        return count

    def maintain(self) -> None:
        """Look after the records seen longest ago, so that what Redis dropped is counted; asks how it is."""
        try:
            self._look(self._ledger.longest_unseen(MAINTAIN_RECORDS))
            self._link.ask_all((b"PING",))
            self._memory.look_again()
        except LinkDownError:
            pass  # is_up tells

    def usage(self) -> Usage:
        """See :meth:`Tier.usage`.

        ``used_bytes`` and ``budget_bytes`` are the server's memory and ``maxmemory``, asked for at most once a second,
        whoever uses it. Redis may be over its maxmemory by a record. Nothing is ever pinned.
        """
        records, live_bytes, owners = self._ledger.totals()
        used_bytes, budget_bytes = self._memory.read()
        return Usage(records, live_bytes, used_bytes, budget_bytes, 0, owners, filled_bytes=used_bytes)

    def is_up(self) -> bool:
        """Whether the last conversation with Redis ended well; true before the first."""
        return self._link.ailment is None and not self._is_closed

    def trouble(self) -> str | None:
        """See :meth:`Tier.trouble`. A Redis that is read-only, or full and evicts nothing, is up and in trouble."""
        ailment = self._link.ailment
        if ailment is None and self._link.is_read_only:
            ailment = Ailment.REFUSED
        elif ailment is None and self._memory.is_full:
            ailment = Ailment.FULL
        return ailment.words if ailment else self._link.trouble()

    def check_integrity(self) -> None:
        """Compare what is known with what is there. What Redis has dropped meanwhile is struck off, and is no error."""
        try:
            for batch in _cut(self._ledger.check(), ASK_RECORDS):
                found = self._values.look([record_id for record_id, _ in batch])
                lengths = self._values.lengths([self._values.key(record_id) for record_id, _ in batch])
                for (record_id, head), one, length in zip(batch, found, lengths, strict=True):
                    if one is Trouble.ABSENT:
                        self._ledger.absent(record_id)
                    elif isinstance(one, Seen) and length:
                        expect_equal(f"header of {record_id}", one.head, head)
                        expect_equal(f"length of the value of {record_id}", length, head.value_bytes)
        except LinkDownError:
            pass  # nothing there to compare with

    def close(self) -> None:
        """Drop the connections; the records stay."""
        self._is_closed = True
        self._link.close()

    def _write_within(self, quotas: Quotas, records: Sequence[Record]) -> list[WriteResult]:
        """Write what fits a budget at all; whoever is over one afterwards gives up what it has used least."""
        fits = [quotas.fits(record.owner, memoryview(record.payload).nbytes) for record in records]
        written = iter(self._writer.write([record for record, is_fit in zip(records, fits, strict=True) if is_fit]))
        results = []
        for record, is_fit in zip(records, fits, strict=True):
            if not is_fit:
                self._observer.fault(self.name, Ailment.FULL.value)
            results.append(next(written) if is_fit else WriteResult(record.id, WriteOutcome.FULL))
        self.delete(self._ledger.surplus(), cause="budget")
        return results

    def _look(self, ids: Sequence[RecordId]) -> list[Entry | Miss]:
        before = self._clock.monotonic()
        return [
            self._entry(record_id, one, before)
            if isinstance(one, Seen)
            else Miss(record_id, self._missing(record_id, one))
            for record_id, one in zip(ids, self._values.look(ids), strict=True)
        ]

    def _entry(self, record_id: RecordId, seen: Seen, before: float) -> Entry:
        """``before``: the monotonic clock when Redis was asked, so that no deadline is put later than Redis's own."""
        self._ledger.seen(record_id, seen.head, before + seen.left_seconds)
        now = self._clock.now()
        last_used_at = min(now, now + seen.left_seconds - self._ttl_seconds)
        return seen.head.entry(record_id, max(seen.head.created_at, last_used_at))

    def _missing(self, record_id: RecordId, trouble: Trouble) -> MissReason:
        if trouble is Trouble.ABSENT:
            return self._ledger.absent(record_id)
        if trouble is Trouble.AWAY:
            return MissReason.TIER_DOWN
        return self._drop_bad(record_id, "corrupt", lambda found: found is Trouble.GARBAGE)

    def _drop_bad(self, record_id: RecordId, cause: str, is_bad: Callable[[Seen | Trouble], bool]) -> MissReason:
        """Drop a value that fails its checks, unless it has changed since; the reason of the miss either way."""
        if cause == "corrupt":
            self._observer.fault(self.name, cause)
        known = self._ledger.known(record_id)
        try:
            if self._values.discard(record_id, is_bad):
                self._ledger.dropped(record_id, cause, known.length_bytes if known else 0)
        except LinkDownError:
            pass  # whoever finds it next drops it
        return reason_of(cause)

    def _heads(self, ids: Sequence[RecordId]) -> list[tuple[RecordId, Head]]:
        """Headers of the live ones: as known, or looked up where they are not known or name parts."""
        heads = {record_id: self._ledger.known(record_id) for record_id in ids}
        unsure = [record_id for record_id, head in heads.items() if head is None or head.parts]
        for record_id, entry in zip(unsure, self._look(unsure), strict=True):
            heads[record_id] = self._ledger.known(record_id) if isinstance(entry, Entry) else None
        return [(record_id, head) for record_id in ids if (head := heads[record_id]) is not None]

    def _use(self, entries: Sequence[Entry], on_arrival: OnArrival | None) -> list[Loaded | Miss]:
        if not self._link.is_read_only:
            used = self._load(entries, renews=True, on_arrival=on_arrival)
            if not self._link.is_read_only or all(isinstance(one, Loaded) for one in used):
                return used
        # A server that refuses to renew can be read from all the same.
        return self._load(entries)

    def _load(
        self, entries: Sequence[Entry], *, renews: bool = False, on_arrival: OnArrival | None = None
    ) -> list[Loaded | Miss]:
        loaded: list[Loaded | Miss] = []
        arriving = Arriving(entries[0], on_arrival) if on_arrival is not None and len(entries) == 1 else None
        try:
            for batch in _rounds(entries):
                before = self._clock.monotonic()
                found = self._values.load([entry.id for entry in batch], renews=renews, on_bytes=arriving)
                loaded += [self._loaded(entry, one, before, arriving) for entry, one in zip(batch, found, strict=True)]
        except LinkDownError:
            loaded += _down([entry.id for entry in entries[len(loaded) :]])
        return loaded

    def _loaded(
        self, held: Entry, found: tuple[Seen, Payload] | Trouble, before: float, arriving: Arriving | None
    ) -> Loaded | Miss:
        def is_same(now: Seen | Trouble) -> bool:
            return isinstance(now, Seen) and now.head.generation == generation

        generation = held.generation
        if found is Trouble.LOST_PART:
            return Miss(held.id, self._drop_bad(held.id, "budget", is_same))
        if isinstance(found, Trouble):
            return Miss(held.id, self._missing(held.id, found))
        seen, payload = found
        if len(payload) != seen.head.length_bytes or checksum_of(payload) != seen.head.checksum:
            generation = seen.head.generation
            return Miss(held.id, self._drop_bad(held.id, "corrupt", is_same))
        if arriving is not None:
            arriving.found_sound(payload)
        entry = self._entry(held.id, seen, before)
        if not may_stand_for(entry, held):
            return Miss(held.id, MissReason.EVICTED)
        self._observer.moved(self.name, "read", entry.length_bytes)
        return Loaded(entry, payload)


def _quotas(budgets: Mapping[str, int] | None, known_records: int) -> Quotas | None:
    if budgets is None:
        return None
    own = {owner: budget for owner, budget in budgets.items() if owner}
    return Quotas(own, budgets[""], known_records)


def _down(ids: Sequence[RecordId]) -> list[Miss]:
    return [Miss(record_id, MissReason.TIER_DOWN) for record_id in ids]


def _cut(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _rounds(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Cut reads into rounds of about ``READ_ROUND_BYTES``, one record at least."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        if batch and (size + entry.length_bytes > READ_ROUND_BYTES or len(batch) == ASK_RECORDS):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += entry.length_bytes
    if batch:
        yield batch
