"""What the verbs work on: handed to each of them, made once by :mod:`service.shelf.assemble`."""

from collections.abc import Callable
from dataclasses import dataclass, field

from service.access import Access
from service.erasure.book import ErasureBook
from service.leases.book import LeaseBook
from service.leases.lease import PlanFacts, RequestKey
from service.leases.recent import Recent
from service.metrics import Metrics
from service.namespaces import NamespaceRegistry
from service.scrub.scrubber import Scrubber
from service.sealing import KeyBook
from service.settings import Settings
from service.shelf.fates import Fates
from service.shelf.turns import Turns
from service.shelf.watched import ShelfState
from service.tracing import Tracing
from storage.base import Tier
from storage.clock import Clock


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one running service.

    ``plans`` remembers, by owner and plan id, what stores that name it may claim; ``finished`` the requests already
    counted; ``new_id`` makes unguessable ids.
    """

    settings: Settings
    clock: Clock
    new_id: Callable[[], str]
    metrics: Metrics
    access: Access
    namespaces: NamespaceRegistry
    blocks: Tier
    snapshots: Tier
    leases: LeaseBook
    plans: Recent[tuple[str | None, str], PlanFacts]
    finished: Recent[RequestKey, None]
    breaker_state: Callable[[], str]
    """The state of the pool's breaker: ``closed``, ``open`` or ``half_open``."""
    retention_reached_seconds: Callable[[], float]
    shelves: Callable[[], list[ShelfState]]
    """Every shelf of the tiers as it is now, those of tenants too."""
    close: Callable[[], None]
    """End every lease, flush, and let go of the tiers and the data directory."""
    erasures: ErasureBook
    scrubber: Scrubber
    fates: Fates = field(default_factory=Fates)
    """What became of records that no tier has."""
    keys: KeyBook | None = None
    """The keys that records are sealed with; None where encryption is off."""
    tracing: Tracing | None = None
    """Makes spans; None where nothing is traced."""
    turns: Turns = field(default_factory=Turns)
    """Of snapshots: one that is retired after a look must not have become exact since."""
