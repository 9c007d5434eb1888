"""What a case of the benchmark is: one small module that measures one path, next to the references it names."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tests.load.bench.stage import Stage

Figures = dict[str, float]
"""What one round measured, by name; the name ends in the unit: ``_gb_s``, ``_ms``, ``_share``, ``_mb``."""


class NotHereError(Exception):
    """A case cannot run on this machine; the message says what to install."""


class Case(ABC):
    """One path. It is set up once, measured once a round, right after its references, and taken down.

    ``references`` are other cases by name. ``ratios`` maps a name of the results to two figures, of this case and its
    references, that are divided; ``costs`` are figures that are results as they are. An ``optional`` case may raise
    NotHereError from :meth:`open`.
    """

    name: ClassVar[str]
    references: ClassVar[tuple[str, ...]] = ()
    ratios: ClassVar[Mapping[str, tuple[str, str]]] = {}
    costs: ClassVar[tuple[str, ...]] = ()

    def open(self, stage: Stage) -> None:
        """Set up. What must be let go of is handed to ``stage.closing``."""
        self.stage = stage

    @abstractmethod
    def run(self) -> Figures:
        """Measure once."""


@dataclass(frozen=True)
class Goal:
    """What a result should reach: at least, or at most where ``at_most``."""

    floor: float
    aim: float
    at_most: bool = False

    def meets(self, value: float) -> str:
        """``aim``, ``floor`` or ``below``."""
        if value <= self.aim if self.at_most else value >= self.aim:
            return "aim"
        return "floor" if (value <= self.floor if self.at_most else value >= self.floor) else "below"


GOALS = {
    "http_fetch_vs_tcp": Goal(0.5, 0.8),
    "http_fetch_vs_redis_mget256": Goal(3, 5),
    "http_fetch_vs_redis_best": Goal(1.5, 2.5),
    "grpc_fetch_vs_tcp": Goal(0.2, 0.3),
    "http_store_vs_tcp": Goal(0.5, 0.65),
    "local_copy_vs_memcpy": Goal(0.7, 0.85),
    "local_verify_vs_memcpy": Goal(0.85, 0.95),
    "cold_fetch_vs_disk": Goal(0.7, 0.9),
    "cold_fetch_vs_lmdb_inline": Goal(3, 4),
    "durable_store_vs_disk": Goal(0.65, 0.8),
    "churn_last_vs_second": Goal(0.8, 0.9),
    "churn_live_vs_budget": Goal(0.95, 0.97),
    "snapshot_fetch_vs_tcp": Goal(0.25, 0.4),
    "clients32_vs_1": Goal(0.9, 1.0),
    "plan_1m_tokens_ms": Goal(40, 15, at_most=True),
    "client_overhead_us": Goal(100, 100, at_most=True),
    "lease_256_ms": Goal(1.2, 0.8, at_most=True),
    "server_memory_over_pools_mb": Goal(300, 200, at_most=True),
}
"""The goals for the median of a quiet run."""
