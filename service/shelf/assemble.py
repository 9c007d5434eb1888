"""Make the parts of a service from its settings, and take them apart again in order."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from service.access import Access, GuardedAccess, UnguardedAccess
from service.erasure.book import MAX_ERASURES, ErasureBook
from service.leases.book import LeaseBook
from service.leases.lease import Lease, PlanFacts, RequestKey
from service.leases.recent import Recent
from service.metrics import Metrics
from service.metrics.events import EventLog
from service.namespaces import NamespaceRegistry
from service.scrub.scrubber import Scrubber
from service.sealing import KeyBook, KeySource
from service.settings import SHARED_SHELF, Settings
from service.shelf.data_dir import open_data_dir
from service.shelf.finishing import finish_all
from service.shelf.parts import Parts
from service.shelf.shelves import Shelves
from service.shelf.watched import ShelfState
from service.tracing import Tracing, open_tracing
from service.version import __version__
from storage.base import Tier, TierObserver
from storage.breaker import BreakerTier
from storage.catalog import Catalog
from storage.clock import Clock
from storage.sealed import SEAL_BYTES
from storage.ssd.sizing import max_payload_bytes, segment_bytes

MAX_DOCUMENTS = 1 << 20
"""Of the catalog of namespaces; what bounds them is `limits.max_namespaces`, a tenant's."""


def new_id() -> str:
    """An id that nobody guesses: 24 hexadecimal digits."""
    return secrets.token_hex(12)


def open_service(settings: Settings, clock: Clock, make_id: Callable[[], str] = new_id) -> Parts:
    """Open the data directory and the tiers, and put a service together. Its ``close`` undoes all of it.

    Raises:
        OSError: the data directory cannot be made or opened; the text names it.
        DirectoryLockedError: another process has it.
        UnusableDirectoryError: it was written by another version, or is no data directory.
        CatalogError: a namespace in it is damaged.
        TokenFileError: the file of tokens cannot be used.
        KeySourceError: the encryption keys cannot be read.
        TracingUnavailableError: traces take packages that are not installed.
    """
    closing = ExitStack()
    try:
        return _open(settings, clock, make_id, closing)
    except BaseException:  # A start that failed halfway lets go of what it opened.
        closing.close()
        raise


def _open(settings: Settings, clock: Clock, make_id: Callable[[], str], closing: ExitStack) -> Parts:
    directory = settings.store.data_dir
    metrics = Metrics(__version__, EventLog(clock).write)
    tracing = open_tracing(settings, __version__, clock)
    if tracing is not None:
        closing.callback(tracing.close)
        metrics.trace(tracing)
    access = _open_access(settings, clock, metrics)
    budgets = settings.store_budgets()

    def max_block_bytes(tenant: str) -> int:
        return max_payload_bytes(segment_bytes(budgets.get(tenant, budgets[SHARED_SHELF]))) - SEAL_BYTES

    with _explained(directory):
        closing.enter_context(open_data_dir(directory))
        # Before the tier: a budget too small for a namespace must be refused before it makes the tier shrink.
        namespaces = NamespaceRegistry(
            Catalog(directory / "namespaces", max_documents=MAX_DOCUMENTS),
            max_namespaces=settings.limits.max_namespaces,
            max_block_bytes=max_block_bytes,
            max_snapshot_bytes=settings.limits.max_snapshot_bytes,
            shared=settings.access.shared,
        )
        if not access.is_guarded:
            namespaces.check_names()
        keys = _open_keys(settings, clock, namespaces)
        erasures = ErasureBook(Catalog(directory / "erasures", max_documents=MAX_ERASURES))
        shelves = Shelves(
            settings, clock, metrics, namespaces.tenant_of, lambda tier: _sealed(tier, keys, metrics), closing
        )
        blocks = shelves.open_blocks()
    parts = assemble(
        settings,
        clock,
        make_id,
        metrics=metrics,
        access=access,
        namespaces=namespaces,
        blocks=blocks,
        snapshots=shelves.open_pool(),
        retention_reached_seconds=lambda: shelves.retention_seconds,
        shelf_states=shelves.states,
        close=closing.close,
        erasures=erasures,
        scrubber=Scrubber(blocks, clock, settings.scrub, metrics, Catalog(directory / "scrub", max_documents=1)),
        keys=keys,
        tracing=tracing,
    )
    closing.callback(finish_all, parts)
    return parts


def _open_access(settings: Settings, clock: Clock, metrics: Metrics) -> Access:
    if settings.access.token_file is None:
        return UnguardedAccess()
    return GuardedAccess(settings.access.token_file, clock, denied=lambda why: metrics.denials.labels(why).inc())


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    """An OSError in here says which directory it is about."""
    try:
        yield
    except OSError as error:
        reason = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        raise OSError(error.errno, f"cannot use the data directory {directory}: {reason}") from None


def assemble(
    settings: Settings,
    clock: Clock,
    make_id: Callable[[], str],
    *,
    metrics: Metrics,
    access: Access,
    namespaces: NamespaceRegistry,
    blocks: Tier,
    snapshots: BreakerTier,
    retention_reached_seconds: Callable[[], float | None],
    shelf_states: Callable[[], list[ShelfState]],
    close: Callable[[], None],
    erasures: ErasureBook,
    scrubber: Scrubber,
    keys: KeyBook | None = None,
    tracing: Tracing | None = None,
) -> Parts:
    """Put a service together from opened parts; ``close`` becomes its own."""
    leases = settings.lease
    longest_seconds = max(leases.plan_memory_seconds, leases.ttl_seconds, leases.max_ttl_seconds)
    plans = Recent[tuple[str | None, str], PlanFacts](
        clock, ttl_seconds=longest_seconds, limit=leases.max_plans, owner_of=lambda key: key[0]
    )
    finished = Recent[RequestKey, None](
        clock, ttl_seconds=leases.plan_memory_seconds, limit=leases.max_plans, owner_of=lambda key: key[0]
    )

    def renew_facts(lease: Lease) -> None:
        """No plan is forgotten while its lease lives."""
        for answer in lease.answers:
            plans.renew((lease.owner, answer.plan_id))

    return Parts(
        settings=settings,
        clock=clock,
        new_id=make_id,
        metrics=metrics,
        access=access,
        namespaces=namespaces,
        blocks=blocks,
        snapshots=snapshots,
        leases=LeaseBook(
            clock,
            max_leases=leases.max_leases,
            max_records=leases.max_records,
            max_tenant_share=leases.max_tenant_share,
            renewed=renew_facts,
        ),
        plans=plans,
        finished=finished,
        breaker_state=lambda: snapshots.state.value,
        retention_reached_seconds=lambda: _or_ttl(retention_reached_seconds(), settings),
        shelves=shelf_states,
        close=close,
        erasures=erasures,
        scrubber=scrubber,
        keys=keys,
        tracing=tracing,
    )


def _or_ttl(seconds: float | None, settings: Settings) -> float:
    return settings.store.ttl_seconds if seconds is None else seconds


def _open_keys(settings: Settings, clock: Clock, namespaces: NamespaceRegistry) -> KeyBook | None:
    """The keys of encryption at rest; None where that is off. Raises KeySourceError."""
    encryption = settings.encryption
    if not encryption.is_on:
        return None
    return KeyBook(
        KeySource(encryption.key_file, encryption.key_command, encryption.command_seconds),
        clock,
        refresh_seconds=encryption.refresh_seconds,
        tenant_of=namespaces.tenant_of,
    )


def _sealed(tier: Tier, keys: KeyBook | None, observer: TierObserver) -> Tier:
    """A tier whose payloads are sealed where encryption is on."""
    if keys is None:
        return tier
    from storage.sealed.tier import SealedTier  # takes a library that is there only where encryption is used

    return SealedTier(tier, keys.keys_of, os.urandom, observer)
