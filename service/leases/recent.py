"""A bounded, ageing memory: what plans and request ids are remembered in."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from storage.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A thread-safe map that forgets an item ``ttl_seconds`` after it was put, and the oldest beyond ``limit``.

    Beyond the limit it is whoever has the most items that loses their oldest: nobody is made to forget by others who
    have more. ``owner_of`` says whose an item is, by its key; by default all are one owner's.
    """

    def __init__(
        self, clock: Clock, *, ttl_seconds: float, limit: int, owner_of: Callable[[K], Hashable] = lambda _: None
    ) -> None:
        self._clock = clock
        self._ttl_seconds = ttl_seconds
        self._limit = limit
        self._owner_of = owner_of
        self._lock = threading.Lock()
        self._owners: dict[Hashable, OrderedDict[K, tuple[float, V]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, key: K, value: V) -> None:
        """Remember ``value`` under ``key``, in place of an earlier one."""
        now = self._clock.monotonic()
        with self._lock:
            self._put(key, value, now)

    def put_if_absent(self, key: K, value: V) -> bool:
        """Remember ``value`` unless ``key`` is known; says whether it was put."""
        now = self._clock.monotonic()
        with self._lock:
            if self._find(key, now) is not None:
                return False
            self._put(key, value, now)
            return True

    def renew(self, key: K) -> None:
        """Remember what is known of ``key`` as long as if it were put now; nothing where it is not known."""
        now = self._clock.monotonic()
        with self._lock:
            found = self._find(key, now)
            if found is not None:
                self._put(key, found[1], now)

    def get(self, key: K) -> V | None:
        """What is remembered, or None."""
        now = self._clock.monotonic()
        with self._lock:
            found = self._find(key, now)
            return found[1] if found is not None else None

    def _find(self, key: K, now: float) -> tuple[float, V] | None:
        items = self._owners.get(self._owner_of(key))
        found = items.get(key) if items else None
        return found if found is not None and now < found[0] else None

    def _put(self, key: K, value: V, now: float) -> None:
        items = self._owners.setdefault(self._owner_of(key), OrderedDict())
        self._count -= items.pop(key, None) is not None
        items[key] = (now + self._ttl_seconds, value)
        self._count += 1
        while now >= next(iter(items.values()))[0]:
            self._drop_oldest(items)
        while self._count > self._limit:
            owner, most = max(self._owners.items(), key=lambda item: len(item[1]))
            self._drop_oldest(most)
            if not most:
                del self._owners[owner]

    def _drop_oldest(self, items: OrderedDict[K, tuple[float, V]]) -> None:
        items.popitem(last=False)
        self._count -= 1
