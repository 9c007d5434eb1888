"""All leases of a service: bounded in number and in records, renewed by use, gone at their time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from service.leases.lease import Lease
from storage.clock import Clock


class UnknownLeaseError(LookupError):
    """No such lease: it was never given, was released, or its time is over. Plan again."""


class LeaseLimitError(Exception):
    """The bound on leases or on leased records is reached. Try again when some have ended."""


class LeaseBook:
    """Thread-safe. A lease in use is not let go before the use ends, however late."""

    def __init__(self, clock: Clock, *, max_leases: int, max_records: int) -> None:
        self._clock = clock
        self._max_leases = max_leases
        self._max_records = max_records
        self._lock = threading.Lock()
        self._leases: dict[str, Lease] = {}
        self._by_request: dict[tuple[str, str], str] = {}
        self._records = 0

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def records(self) -> int:
        """Records under lease now."""
        return self._records

    def add(self, lease: Lease) -> Lease | None:
        """Start a lease. Returns the one it takes the place of, of the same request, already closed; or None.

        Raises:
            LeaseLimitError: a bound is reached; nothing was added and the new lease's holds are still its own.
        """
        with self._lock:
            earlier = self._leases.get(self._by_request.get((lease.namespace.name, lease.request_id), ""))
            freed = earlier.records if earlier else 0
            if len(self._leases) - bool(earlier) >= self._max_leases:
                raise LeaseLimitError(f"{self._max_leases} leases are out")
            if self._records - freed + lease.records > self._max_records:
                raise LeaseLimitError(f"{self._records} of at most {self._max_records} records are under lease")
            if earlier:
                self._close(earlier)
            lease.expires_at = self._clock.monotonic() + lease.ttl_seconds
            self._leases[lease.lease_id] = lease
            self._by_request[lease.namespace.name, lease.request_id] = lease.lease_id
            self._records += lease.records
            return earlier

    @contextmanager
    def use(self, lease_id: str) -> Iterator[Lease]:
        """Use a lease and renew its time at both ends of the use.

        Raises:
            UnknownLeaseError: see there.
        """
        with self._lock:
            lease = self._leases.get(lease_id)
            if lease is None or self._is_over(lease):
                raise UnknownLeaseError(lease_id)
            lease.users += 1
            lease.expires_at = self._clock.monotonic() + lease.ttl_seconds
        try:
            yield lease
        finally:
            with self._lock:
                lease.users -= 1
                lease.expires_at = self._clock.monotonic() + lease.ttl_seconds
                if lease.closed and not lease.users:
                    lease.let_go()

    def release(self, lease_id: str) -> Lease:
        """End a lease and return it.

        Raises:
            UnknownLeaseError: see there.
        """
        with self._lock:
            lease = self._leases.get(lease_id)
            if lease is None:
                raise UnknownLeaseError(lease_id)
            self._close(lease)
            return lease

    def expire(self) -> list[Lease]:
        """End every lease whose time is over and return them."""
        with self._lock:
            over = [lease for lease in self._leases.values() if self._is_over(lease)]
            for lease in over:
                self._close(lease)
            return over

    def release_all(self) -> list[Lease]:
        """End every lease, as at a stop, and return them."""
        with self._lock:
            everything = list(self._leases.values())
            for lease in everything:
                self._close(lease)
            return everything

    def _is_over(self, lease: Lease) -> bool:
        return not lease.users and self._clock.monotonic() >= lease.expires_at

    def _close(self, lease: Lease) -> None:
        del self._leases[lease.lease_id]
        if self._by_request.get((lease.namespace.name, lease.request_id)) == lease.lease_id:
            del self._by_request[lease.namespace.name, lease.request_id]
        self._records -= lease.records
        lease.closed = True
        if not lease.users:
            lease.let_go()

    def check_integrity(self) -> None:
        """Raise AssertionError when the accounts do not add up."""
        with self._lock:
            held = sum(lease.records for lease in self._leases.values())
            if held != self._records:
                raise AssertionError(f"leases hold {held} records, the book says {self._records}")
            if not set(self._by_request.values()) <= set(self._leases):
                raise AssertionError("a request points at a lease that is gone")
