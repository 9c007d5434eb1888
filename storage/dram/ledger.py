"""What this process knows of the records in a pool that others write to as well, and that drops them unasked.

Redis tells nobody what it evicts, and counts no payload bytes by owner. So the tier keeps a ledger of what it stored
or saw: it is where usage comes from, and where a record that is no longer there gets its reason from: expired when
its deadline has passed, evicted otherwise (by Redis, by its restart, or by another process).
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from kvshelf_client.words import MissReason
from storage.base import RecordId, TierObserver
from storage.clock import Clock
from storage.dram.header import Head
from storage.dram.quotas import Quotas
from storage.ghosts import Ghosts, reason_of
from storage.integrity import expect_equal


class Known(NamedTuple):
    """A record as it was last seen. ``deadline`` is in seconds of the monotonic clock."""

    head: Head
    deadline: float


class Ledger:
    """The records known to be in the pool, the one seen longest ago first. Thread-safe.

    Args:
        clock: for deadlines and ages.
        observer: told of every record that is found to be gone, under the label ``name``.
        name: the tier's name.
        limit: records known at a time; past it the one seen longest ago is forgotten, though it may still be there.
            A record takes some 600 bytes.
        quotas: budgets of owners; None where there are none.
    """

    def __init__(
        self, *, clock: Clock, observer: TierObserver, name: str, limit: int, quotas: Quotas | None = None
    ) -> None:
        self._clock = clock
        self._observer = observer
        self._name = name
        self._limit = limit
        self._ghosts = Ghosts(limit)
        self._lock = threading.Lock()
        self._known: OrderedDict[RecordId, Known] = OrderedDict()
        self._owners: Counter[str] = Counter()
        self._live_bytes = 0
        self._quotas = quotas
        self._taken_bytes: Counter[str | None] = Counter()

    def seen(self, record_id: RecordId, head: Head, deadline: float) -> None:
        """The record is there, as ``head`` says, until ``deadline`` (seconds of the monotonic clock)."""
        with self._lock:
            self._forget(record_id)
            self._known[record_id] = Known(head, deadline)
            self._account(head, 1)
            if len(self._known) > self._limit:
                self._forget(next(iter(self._known)))
        self._ghosts.forget([record_id])

    def known(self, record_id: RecordId) -> Head | None:
        """The header the record had when it was last seen."""
        with self._lock:
            found = self._known.get(record_id)
            return found.head if found else None

    def absent(self, record_id: RecordId) -> MissReason:
        """The record is not there: strike it off if it was known, and say why it is gone."""
        with self._lock:
            found = self._forget(record_id)
        if found is None:
            return self._ghosts.reason(record_id)
        now = self._clock.monotonic()
        cause = "expired" if now >= found.deadline else "budget"
        if cause == "expired":
            lived = self._clock.now() - found.head.created_at - (now - found.deadline)
            self._observer.age_at_expiry(self._name, max(0.0, lived))
        return self._gone(record_id, found.head.length_bytes, cause)

    def dropped(self, record_id: RecordId, cause: str, payload_bytes: int) -> MissReason:
        """This process took the record out of the pool, for ``cause``."""
        with self._lock:
            self._forget(record_id)
        return self._gone(record_id, payload_bytes, cause)

    def longest_unseen(self, count: int) -> list[RecordId]:
        """The records seen longest ago, at most ``count``."""
        with self._lock:
            return [record_id for record_id, _ in zip(self._known, range(count), strict=False)]

    def surplus(self) -> list[RecordId]:
        """The records to take out so that nobody is over a budget: of who is, those whose end is next."""
        with self._lock:
            if self._quotas is None or not (surplus := self._quotas.surplus(self._taken_bytes)):
                return []
            victims = []
            for record_id, known in sorted(self._known.items(), key=lambda item: item[1].deadline):
                account = self._quotas.account_of(known.head.owner)
                if surplus.get(account, 0) > 0:
                    surplus[account] -= self._quotas.cost_bytes(known.head.length_bytes)
                    victims.append(record_id)
            return victims

    def totals(self) -> tuple[int, int, dict[str, int]]:
        """Records, payload bytes, and payload bytes by owner."""
        with self._lock:
            return len(self._known), self._live_bytes, dict(self._owners)

    def check(self) -> Sequence[tuple[RecordId, Head]]:
        """Add everything up again; returns all that is known. Raises AssertionError that names the difference."""
        with self._lock:
            known = [(record_id, found.head) for record_id, found in self._known.items()]
            owners: Counter[str] = Counter()
            for _, head in known:
                owners[head.owner] += head.length_bytes
            expect_equal("live bytes", owners.total(), self._live_bytes)
            expect_equal("owners", {name: size for name, size in owners.items() if size}, dict(self._owners))
        return known

    def _gone(self, record_id: RecordId, payload_bytes: int, cause: str) -> MissReason:
        reason = reason_of(cause)
        self._ghosts.note(record_id, reason)
        self._observer.evicted(self._name, cause, 1, payload_bytes)
        return reason

    def _forget(self, record_id: RecordId) -> Known | None:
        found = self._known.pop(record_id, None)
        if found is not None:
            self._account(found.head, -1)
        return found

    def _account(self, head: Head, change: int) -> None:
        """Count a record in (1) or out (-1)."""
        if self._quotas is not None:
            cost_bytes = self._quotas.cost_bytes(head.length_bytes)
            self._taken_bytes[self._quotas.account_of(head.owner)] += change * cost_bytes
        change_bytes = change * head.length_bytes
        self._live_bytes += change_bytes
        self._owners[head.owner] += change_bytes
        if not self._owners[head.owner]:
            del self._owners[head.owner]
