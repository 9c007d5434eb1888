"""Ghosts: what a tier remembers of records it no longer has, so that a later miss can say why."""

import threading
from collections import OrderedDict
from collections.abc import Iterable

from kvshelf_client.words import MissReason
from storage.base import RecordId

_REASONS = {
    "expired": MissReason.EXPIRED,
    "budget": MissReason.EVICTED,
    "superseded": MissReason.EVICTED,
    "corrupt": MissReason.CORRUPT,
}


def reason_of(cause: str) -> MissReason:
    """The reason a look-up gives for a record that went for ``cause`` (the causes of ``TierObserver.evicted``).

    A record that somebody deleted is as one that was never stored.
    """
    return _REASONS.get(cause, MissReason.NEVER_STORED)


class Ghosts:
    """A bounded map of recently dropped record ids to the reason. Past the limit the oldest note is lost.

    Thread-safe. Lives in memory alone: after a restart everything that is not there was never stored.

    Args:
        limit: notes kept, at least 1. A note takes some 250 bytes.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        self._limit = limit
        self._reasons: OrderedDict[RecordId, MissReason] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._reasons)

    def note(self, record_id: RecordId, reason: MissReason) -> None:
        """Remember why a record went; a newer reason replaces an older one. ``NEVER_STORED`` forgets it."""
        with self._lock:
            self._reasons.pop(record_id, None)
            if reason is MissReason.NEVER_STORED:
                return
            self._reasons[record_id] = reason
            if len(self._reasons) > self._limit:
                self._reasons.popitem(last=False)

    def reason(self, record_id: RecordId) -> MissReason:
        """Why the record is not there: what was noted, else ``NEVER_STORED``.

        Takes no lock: one read of a dictionary, and lookups ask this thousands of times a call.
        """
        return self._reasons.get(record_id, MissReason.NEVER_STORED)

    def forget(self, ids: Iterable[RecordId]) -> None:
        """Records are stored again: drop their notes, where there are any."""
        if not self._reasons:
            return
        with self._lock:
            for record_id in ids:
                self._reasons.pop(record_id, None)
