"""What has become of the calls of a client, counted."""

import threading
from collections import Counter, defaultdict


class Counters:
    """Counts by subject and outcome, both from closed sets. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, subject: str, outcome: str, count: int = 1) -> None:
        """Count an outcome."""
        with self._lock:
            self._counts[subject][outcome] += count

    def snapshot(self) -> dict[str, dict[str, int]]:
        """All counts so far, by subject and outcome."""
        with self._lock:
            return {subject: dict(counts) for subject, counts in self._counts.items()}
