"""All leases of a service: bounded in number and in what they keep, renewed by use, gone at their time."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from service.leases.lease import Lease, RequestKey
from storage.clock import Clock

_Key = tuple[str | None, str]


class UnknownLeaseError(LookupError):
    """No such lease: it was never given, was released, or its time is over. Plan again."""


class LeaseLimitError(Exception):
    """The bound on leases or on leased records is reached. Try again when some have ended."""


class LeaseBook:
    """Thread-safe. A lease in use is not let go before the use ends, however late.

    Holds are let go outside the book's lock: that may take long, and nobody else has to wait for it.

    Args:
        clock: when leases are over.
        max_leases: leases at one time.
        max_records: what all of them may come to, each at its :attr:`Lease.weight`.
        max_tenant_share: what one tenant may have of either, above 0 and at most 1. Without tenants it bounds nobody.
        renewed: told of each lease that is renewed by a use, from the using thread.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        max_leases: int,
        max_records: int,
        max_tenant_share: float = 1.0,
        renewed: Callable[[Lease], None] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._max_leases = max_leases
        self._max_records = max_records
        self._max_tenant_share = max_tenant_share
        self._renewed = renewed
        self._lock = threading.Lock()
        # The owner is part of the key: what is another's is not found, as what never was, and in the same way.
        self._leases: dict[_Key, Lease] = {}
        self._by_request: dict[RequestKey, Lease] = {}
        self._records = 0
        self._weight = 0
        self._counts: Counter[str | None] = Counter()
        self._weights: Counter[str | None] = Counter()

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def records(self) -> int:
        """Records under lease now."""
        return self._records

    def has_unread(self) -> bool:
        """Whether a plan was answered whose records nobody has begun to fetch."""
        with self._lock:
            return any(lease.is_unread for lease in self._leases.values())

    def check_room(self, request: RequestKey, weight: int) -> None:
        """Whether a lease of a request that comes to ``weight`` would be taken now.

        Raises:
            LeaseLimitError: a bound is reached.
        """
        with self._lock:
            self._check_room(request[0], self._by_request.get(request), weight)

    def add(self, lease: Lease) -> Lease | None:
        """Start a lease. Returns the one it takes the place of, of the same request, already closed; or None.

        Raises:
            LeaseLimitError: a bound is reached; nothing was added and the new lease's holds are still its own.
        """
        with self._lock:
            earlier = self._by_request.get(lease.request_key)
            self._check_room(lease.owner, earlier, lease.weight)
            idle = self._close([earlier] if earlier else [])
            lease.expires_at = self._clock.monotonic() + lease.ttl_seconds
            self._leases[lease.owner, lease.lease_id] = lease
            self._by_request[lease.request_key] = lease
            self._count(lease, 1)
        _let_go(idle)
        return earlier

    def _check_room(self, owner: str | None, earlier: Lease | None, weight: int) -> None:
        """Raise LeaseLimitError unless a lease of that weight fits in, in place of the earlier one."""
        count, more = (0, weight - earlier.weight) if earlier else (1, weight)
        for what, of_all, own, most in (
            ("leases", len(self._leases) + count, self._counts[owner] + count, self._max_leases),
            ("records under lease", self._weight + more, self._weights[owner] + more, self._max_records),
        ):
            share = most if owner is None else int(most * self._max_tenant_share)
            if of_all > most or own > share:
                bounds = f"at most {share} of one caller, {most} of all"
                raise LeaseLimitError(f"no room for more {what}: {bounds}, and this request needs {weight} records")

    def _count(self, lease: Lease, change: int) -> None:
        """Count a lease in (1) or out (-1)."""
        self._records += change * lease.records
        self._weight += change * lease.weight
        self._counts[lease.owner] += change
        self._weights[lease.owner] += change * lease.weight
        if not self._counts[lease.owner]:
            del self._counts[lease.owner], self._weights[lease.owner]

    @contextmanager
    def use(self, owner: str | None, lease_id: str) -> Iterator[Lease]:
        """Use a lease of ``owner`` and renew its time at both ends of the use.

        Raises:
            UnknownLeaseError: see there.
        """
        with self._lock:
            lease = self._leases.get((owner, lease_id))
            if lease is None or self._is_over(lease):
                raise UnknownLeaseError(lease_id)
            lease.users += 1
            lease.expires_at = self._clock.monotonic() + lease.ttl_seconds
        try:
            self._renewed(lease)
            yield lease
        finally:
            with self._lock:
                lease.users -= 1
                lease.expires_at = self._clock.monotonic() + lease.ttl_seconds
                is_idle = lease.closed and not lease.users
            self._renewed(lease)
            _let_go([lease] if is_idle else [])

    def release(self, owner: str | None, lease_id: str) -> Lease:
        """End a lease of ``owner`` and return it.

        Raises:
            UnknownLeaseError: see there.
        """
        with self._lock:
            lease = self._leases.get((owner, lease_id))
            if lease is None:
                raise UnknownLeaseError(lease_id)
            idle = self._close([lease])
        _let_go(idle)
        return lease

    def expire(self) -> list[Lease]:
        """End every lease whose time is over and return them."""
        with self._lock:
            over = [lease for lease in self._leases.values() if self._is_over(lease)]
            idle = self._close(over)
        _let_go(idle)
        return over

    def release_of(self, namespace_ids: Collection[bytes]) -> list[Lease]:
        """End every lease of these namespaces and return them."""
        with self._lock:
            meant = [lease for lease in self._leases.values() if lease.namespace.namespace_id in namespace_ids]
            idle = self._close(meant)
        _let_go(idle)
        return meant

    def release_all(self) -> list[Lease]:
        """End every lease, as at a stop, and return them."""
        with self._lock:
            everything = list(self._leases.values())
            idle = self._close(everything)
        _let_go(idle)
        return everything

    def _is_over(self, lease: Lease) -> bool:
        return not lease.users and self._clock.monotonic() >= lease.expires_at

    def _close(self, leases: list[Lease]) -> list[Lease]:
        """Strike leases off. Returns the idle ones, to be let go outside the lock; others are by their last use."""
        for lease in leases:
            del self._leases[lease.owner, lease.lease_id]
            if self._by_request.get(lease.request_key) is lease:
                del self._by_request[lease.request_key]
            self._count(lease, -1)
            lease.closed = True
        return [lease for lease in leases if not lease.users]

    def check_integrity(self) -> None:
        """Raise AssertionError when the accounts do not add up."""
        with self._lock:
            held = sum(lease.records for lease in self._leases.values())
            if held != self._records:
                raise AssertionError(f"leases hold {held} records, the book says {self._records}")
            weight = sum(lease.weight for lease in self._leases.values())
            if weight != self._weight:
                raise AssertionError(f"leases come to {weight}, the book says {self._weight}")
            counts = Counter(lease.owner for lease in self._leases.values())
            if counts != self._counts or sum(self._weights.values()) != weight:
                raise AssertionError(f"owners have {counts} leases, the book says {self._counts}")
            if any(self._leases.get((lease.owner, lease.lease_id)) is not lease for lease in self._by_request.values()):
                raise AssertionError("a request points at a lease that is gone")


def _let_go(leases: Iterable[Lease]) -> None:
    for lease in leases:
        lease.let_go()
