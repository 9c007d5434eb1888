"""What the parts of the tier share: its index, files, pins and notes, and what a record's life is."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from storage.base import TierObserver
from storage.ghosts import Ghosts, reason_of
from storage.ssd.batch import Dropped
from storage.ssd.gate import Gate
from storage.ssd.ids import record_id_of
from storage.ssd.images import Images
from storage.ssd.index import Index
from storage.ssd.loading import Loader
from storage.ssd.medium import Medium, is_no_space
from storage.ssd.memory import PayloadMemory
from storage.ssd.pins import Pins
from storage.ssd.quarantine import Quarantine
from storage.ssd.rows import Slot
from storage.ssd.segments import SegmentFiles
from storage.ssd.space import Space
from storage.ssd.touches import Touches


@dataclass(slots=True, kw_only=True)
class Core:
    """The tier's state."""

    name: str
    ttl_seconds: float
    index: Index
    files: SegmentFiles
    pins: Pins
    space: Space
    touches: Touches
    quarantine: Quarantine
    ghosts: Ghosts
    observer: TierObserver
    gate: Gate
    medium: Medium
    images: Images
    memory: PayloadMemory
    loader: Loader

    def now(self) -> float:
        """The tier's time in seconds; never goes back."""
        return self.index.clock.now()

    def last_used(self, id_bytes: bytes, slot: Slot) -> float:
        """When the record was last used, by the index or by a touch it does not have yet."""
        return max(slot.last_used_at, self.touches.times.get(id_bytes, 0.0))

    def is_live(self, used_at: float, now: float) -> bool:
        """Whether a record last used then has not expired."""
        return now - used_at < self.ttl_seconds

    def fault(self, kind: str) -> None:
        """Something failed and is answered as a miss or an outcome."""
        self.observer.fault(self.name, kind)

    def write_failed(self, error: Exception) -> None:
        """A write, a sync or a commit failed and is answered as an outcome."""
        self.medium.write_failed(error)
        self.fault("full" if is_no_space(error) else "io")

    def report(self, dropped: Iterable[Dropped]) -> None:
        """Records have left the index: remember why, and tell the observer."""
        by_cause: defaultdict[str, list[Dropped]] = defaultdict(list)
        for gone in dropped:
            by_cause[gone.cause].append(gone)
            self.ghosts.note(record_id_of(gone.id_bytes), reason_of(gone.cause))
        self.memory.forget(gone.slot.generation for all_gone in by_cause.values() for gone in all_gone)
        for cause, all_gone in by_cause.items():
            total = sum(gone.slot.length_bytes for gone in all_gone)
            self.observer.evicted(self.name, cause, len(all_gone), total)
        for gone in by_cause["expired"]:
            lived = gone.slot.last_used_at + self.ttl_seconds - gone.slot.created_at
            self.observer.age_at_expiry(self.name, max(0.0, lived))
