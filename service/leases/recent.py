"""A bounded, ageing memory: what plans and request ids are remembered in."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from storage.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A thread-safe map that forgets an item ``ttl_seconds`` after it was put, and the oldest beyond ``limit``."""

    def __init__(self, clock: Clock, *, ttl_seconds: float, limit: int) -> None:
        self._clock = clock
        self._ttl_seconds = ttl_seconds
        self._limit = limit
        self._lock = threading.Lock()
        self._items: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, key: K, value: V) -> None:
        """Remember ``value`` under ``key``, in place of an earlier one."""
        now = self._clock.monotonic()
        with self._lock:
            self._items.pop(key, None)
            self._items[key] = (now + self._ttl_seconds, value)
            self._trim(now)

    def put_if_absent(self, key: K, value: V) -> bool:
        """Remember ``value`` unless ``key`` is known; says whether it was put."""
        now = self._clock.monotonic()
        with self._lock:
            self._trim(now)
            if key in self._items:
                return False
            self._items[key] = (now + self._ttl_seconds, value)
            self._trim(now)
            return True

    def renew(self, key: K) -> None:
        """Remember what is known of ``key`` as long as if it were put now; nothing where it is not known."""
        now = self._clock.monotonic()
        with self._lock:
            found = self._items.get(key)
            if found is not None and now < found[0]:
                self._items[key] = (now + self._ttl_seconds, found[1])
                self._items.move_to_end(key)

    def get(self, key: K) -> V | None:
        """What is remembered, or None."""
        now = self._clock.monotonic()
        with self._lock:
            found = self._items.get(key)
            return found[1] if found is not None and now < found[0] else None

    def _trim(self, now: float) -> None:
        while self._items:
            expires_at, _ = next(iter(self._items.values()))
            if len(self._items) <= self._limit and now < expires_at:
                return
            self._items.popitem(last=False)
