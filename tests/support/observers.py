"""A tier observer that remembers what it is told."""

import threading
from collections import Counter
from collections.abc import Mapping

from storage.base import Fact


class RecordingObserver:
    """Adds up every call, from any thread.

    ``evicted_records`` and ``evicted_bytes`` are by cause, ``moved_bytes`` by operation, ``faults`` by kind; ``ages``
    are the seconds of every expiry; ``events`` what was noticed; ``tiers`` are the names that were used as label.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.evicted_records: Counter[str] = Counter()
        self.evicted_bytes: Counter[str] = Counter()
        self.moved_bytes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.ages: list[float] = []
        self.events: list[tuple[str, Mapping[str, Fact]]] = []
        self.tiers: set[str] = set()

    def evicted(self, tier: str, cause: str, records: int, payload_bytes: int) -> None:
        """See ``TierObserver.evicted``."""
        with self._lock:
            self.tiers.add(tier)
            self.evicted_records[cause] += records
            self.evicted_bytes[cause] += payload_bytes

    def age_at_expiry(self, tier: str, seconds: float) -> None:
        """See ``TierObserver.age_at_expiry``."""
        with self._lock:
            self.tiers.add(tier)
            self.ages.append(seconds)

    def moved(self, tier: str, operation: str, payload_bytes: int) -> None:
        """See ``TierObserver.moved``."""
        with self._lock:
            self.tiers.add(tier)
            self.moved_bytes[operation] += payload_bytes

    def fault(self, tier: str, kind: str) -> None:
        """See ``TierObserver.fault``."""
        with self._lock:
            self.tiers.add(tier)
            self.faults[kind] += 1

    def noticed(self, tier: str, event: str, facts: Mapping[str, Fact]) -> None:
        """See ``TierObserver.noticed``."""
        with self._lock:
            self.tiers.add(tier)
            self.events.append((event, facts))
