"""Group commit: callers that write at the same time share one commit and one sync."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from storage.base import Record, WriteResult

_BYTES_PER_GROUP = 64 << 20


@dataclass(slots=True, eq=False)
class Call:
    """One caller's write. ``results`` has one entry a record once it is done."""

    records: Sequence[Record]
    durable: bool
    size_bytes: int
    results: list[WriteResult] = field(default_factory=list)
    error: BaseException | None = None
    is_done: bool = False


class CommitQueue:
    """Whoever gets the lock next writes for all who wait.

    Args:
        lock: the writer's lock.
        write: writes the calls of a group and fills their results in. Called under the lock.
    """

    def __init__(self, lock: threading.Lock, write: Callable[[list[Call]], None]) -> None:
        self._lock = lock
        self._write = write
        self._waiting: deque[Call] = deque()

    def run(self, records: Sequence[Record], *, durable: bool) -> list[WriteResult]:
        """Write records together with what other callers wait for; returns when they are acknowledged."""
        call = Call(records, durable, sum(memoryview(record.payload).nbytes for record in records))
        self._waiting.append(call)
        with self._lock:
            while not call.is_done:
                self._lead()
        if call.error is not None:
            raise call.error
        return call.results

    def _lead(self) -> None:
        group = [self._waiting.popleft()]
        size = group[0].size_bytes
        while self._waiting and size + self._waiting[0].size_bytes <= _BYTES_PER_GROUP:
            group.append(self._waiting.popleft())
            size += group[-1].size_bytes
        try:
            self._write(group)
        except BaseException as error:  # noqa: BLE001 - every caller of the group must learn of it
            for call in group:
                call.error = error
        for call in group:
            call.is_done = True
