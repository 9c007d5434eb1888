"""Records found damaged by readers. They are misses from then on, and the next writer takes them out of the index."""

import threading

from storage.ssd.rows import Slot

Note = tuple[int, int, int] | None
"""Generation, segment and page of what is damaged; None where the index entry itself is."""


def note_of(slot: Slot) -> Note:
    """The note of a record: which copy of which version it is."""
    return (slot.generation, slot.segment, slot.page)


class Quarantine:
    """Notes by id bytes. Bounded, thread-safe.

    A reader never waits for a writer: it only leaves a note here. What the note says keeps a record that was stored
    or copied again in the meantime out of it. A note lost at the limit is no harm: the damage is found again.
    """

    def __init__(self, limit: int = 65_536) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._notes: dict[bytes, Note] = {}

    def __len__(self) -> int:
        return len(self._notes)

    def add(self, id_bytes: bytes, note: Note) -> bool:
        """Note a damaged record; False when it was noted before."""
        with self._lock:
            if self._notes.get(id_bytes, ()) == note:
                return False
            if len(self._notes) < self._limit:
                self._notes[id_bytes] = note
            return True

    def has(self, id_bytes: bytes, note: Note) -> bool:
        """Whether this very record is noted."""
        return self._notes.get(id_bytes, ()) == note

    def all(self) -> list[tuple[bytes, Note]]:
        """The notes; they stay until :meth:`done`."""
        with self._lock:
            return list(self._notes.items())

    def done(self, notes: list[tuple[bytes, Note]]) -> None:
        """The index no longer names these."""
        with self._lock:
            for id_bytes, note in notes:
                if self._notes.get(id_bytes, ()) == note:
                    del self._notes[id_bytes]
