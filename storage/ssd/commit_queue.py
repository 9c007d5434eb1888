"""Group commit: callers that write at the same time share one commit and one sync.

Who comes while a group is being written joins it, so that the medium does not wait for one commit to begin the next.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from storage.base import Record, WriteResult
from storage.ssd.format import padded_bytes
from storage.ssd.ids import id_bytes_of

_BYTES_PER_GROUP = 64 << 20


class Item(NamedTuple):
    """A record to be written, under its id as the index has it."""

    record: Record
    id_bytes: bytes
    length_bytes: int
    size_bytes: int
    """With header and padding."""


def items_of(records: Sequence[Record]) -> list[Item]:
    """Records as they are written. Raises ValueError on a key of another length than keys have."""
    keys = id_bytes_of([record.id for record in records])
    lengths = [memoryview(record.payload).nbytes for record in records]
    return list(map(Item, records, keys, lengths, map(padded_bytes, lengths)))


@dataclass(slots=True, eq=False)
class Call:
    """One caller's write. ``results`` has one entry an item once it is done."""

    items: Sequence[Item]
    durable: bool
    size_bytes: int
    """Of all its items."""
    results: list[WriteResult] = field(default_factory=list)
    error: BaseException | None = None
    is_done: bool = False


class Group:
    """Calls that are written together. Used by whoever has the writer's lock.

    Args:
        first: the call that has waited longest.
        waiting: the others.
    """

    def __init__(self, first: Call, waiting: deque[Call]) -> None:
        self.calls = [first]
        self._waiting = waiting

    @property
    def is_durable(self) -> bool:
        """Whether one of the calls asks for it."""
        return any(call.durable for call in self.calls)

    @property
    def size_bytes(self) -> int:
        """What all calls take on the medium."""
        return sum(call.size_bytes for call in self.calls)

    def take_waiting(self) -> None:
        """Take in all who wait, as far as there is room."""
        while self._waiting and self.size_bytes + self._waiting[0].size_bytes <= _BYTES_PER_GROUP:
            self.calls.append(self._waiting.popleft())

    def join(self, fits: Callable[[Call], bool]) -> Call | None:
        """Take in the call that waits now, if it ``fits`` and asks for no more than the group does."""
        if not self._waiting:
            return None
        call = self._waiting[0]
        if call.durable > self.is_durable or self.size_bytes + call.size_bytes > _BYTES_PER_GROUP or not fits(call):
            return None
        self.calls.append(self._waiting.popleft())
        return call


class CommitQueue:
    """Whoever gets the lock next writes for all who wait.

    Args:
        lock: the writer's lock.
        write: writes the calls of a group and fills their results in. Called under the lock.
    """

    def __init__(self, lock: threading.Lock, write: Callable[[Group], None]) -> None:
        self._lock = lock
        self._write = write
        self._waiting: deque[Call] = deque()

    def run(self, records: Sequence[Record], *, durable: bool) -> list[WriteResult]:
        """Write records together with what other callers wait for; returns when they are acknowledged.

        Raises ValueError as :func:`items_of`.
        """
        items = items_of(records)
        call = Call(items, durable, sum(item.size_bytes for item in items))
        self._waiting.append(call)
        with self._lock:
            while not call.is_done:
                self._lead()
        if call.error is not None:
            raise call.error
        return call.results

    def _lead(self) -> None:
        group = Group(self._waiting.popleft(), self._waiting)
        group.take_waiting()
        try:
            self._write(group)
        except BaseException as error:  # noqa: BLE001 - every caller of the group must learn of it
            for call in group.calls:
                call.error = error
        for call in group.calls:
            call.is_done = True
