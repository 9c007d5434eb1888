"""What became of records that no tier has: a tier that was never given a record knows nothing of it."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Literal

from storage.base import RecordId

Fate = Literal["refused", "tier_down", "superseded"]
"""There was no room for it, the tier was away when it was stored, or a later snapshot took its place."""

LIMIT = 16_384
"""Records that are remembered; some 300 bytes each."""


class Fates:
    """A bounded memory of records by class and id. Thread-safe; what was noted first is forgotten first.

    Ask only of a record that is not there: one that is stored later keeps its note, which nobody then reads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fates: OrderedDict[tuple[str, RecordId], Fate] = OrderedDict()

    def note(self, kind: str, ids: Iterable[RecordId], fate: Fate) -> None:
        """Remember what became of records of a class, ``block`` or ``snapshot``."""
        with self._lock:
            for record_id in ids:
                self._fates.pop((kind, record_id), None)
                self._fates[kind, record_id] = fate
            while len(self._fates) > LIMIT:
                self._fates.popitem(last=False)

    def of(self, kind: str, record_id: RecordId) -> Fate | None:
        """What became of it, None where nothing is known. Takes no lock: plans ask this."""
        return self._fates.get((kind, record_id))
