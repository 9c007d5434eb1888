"""Make the parts of a service from its settings, and take them apart again in order."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from service.access import Access, GuardedAccess, UnguardedAccess
from service.leases.book import LeaseBook
from service.leases.lease import Lease, PlanFacts
from service.leases.recent import Recent
from service.metrics import Metrics
from service.metrics.events import EventLog
from service.namespaces import NamespaceRegistry
from service.sealing import KeyBook, KeySource
from service.settings import Settings
from service.shelf.finishing import finish_all
from service.shelf.parts import Parts
from service.version import __version__
from storage.base import Tier, TierObserver
from storage.breaker import BreakerTier
from storage.catalog import Catalog
from storage.clock import Clock
from storage.dram import RedisTier
from storage.lock import DirectoryLock
from storage.memory import MemoryTier
from storage.sealed import SEAL_BYTES
from storage.ssd import SsdTier, WhenFull
from storage.ssd.sizing import max_payload_bytes, segment_bytes


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
    access = _open_access(settings, clock, metrics)
    with _explained(directory):
        closing.enter_context(DirectoryLock(directory))
        # Before the tier: a budget too small for a namespace must be refused before it makes the tier shrink.
        namespaces = NamespaceRegistry(
            Catalog(directory / "namespaces", max_documents=settings.limits.max_namespaces),
            max_namespaces=settings.limits.max_namespaces,
            max_block_bytes=max_payload_bytes(segment_bytes(settings.store.budget_bytes)) - SEAL_BYTES,
            max_snapshot_bytes=settings.limits.max_snapshot_bytes,
        )
        if not access.is_guarded:
            namespaces.check_names()
        keys = _open_keys(settings, clock, namespaces)
        blocks = _open_blocks(settings, clock, metrics)
    closing.callback(blocks.close)
    snapshots = _open_pool(settings, clock, metrics, keys)
    closing.callback(snapshots.close)
    parts = assemble(
        settings,
        clock,
        make_id,
        metrics=metrics,
        access=access,
        namespaces=namespaces,
        blocks=_sealed(blocks, keys, metrics),
        snapshots=snapshots,
        retention_reached_seconds=lambda: blocks.retention_seconds,
        close=closing.close,
        keys=keys,
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


def _open_blocks(settings: Settings, clock: Clock, metrics: Metrics) -> SsdTier:
    return SsdTier(
        settings.store.data_dir,
        clock=clock,
        observer=metrics,
        ttl_seconds=settings.store.ttl_seconds,
        budget_bytes=settings.store.budget_bytes,
        when_full=WhenFull(settings.store.when_full),
    )


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
    close: Callable[[], None],
    keys: KeyBook | None = None,
) -> Parts:
    """Put a service together from opened parts; ``close`` becomes its own."""
    leases = settings.lease
    longest_seconds = max(leases.plan_memory_seconds, leases.ttl_seconds, leases.max_ttl_seconds)
    plans = Recent[tuple[str | None, str], PlanFacts](clock, ttl_seconds=longest_seconds, limit=leases.max_plans)

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
        leases=LeaseBook(clock, max_leases=leases.max_leases, max_records=leases.max_records, renewed=renew_facts),
        plans=plans,
        finished=Recent(clock, ttl_seconds=leases.plan_memory_seconds, limit=leases.max_plans),
        breaker_state=lambda: snapshots.state.value,
        retention_reached_seconds=lambda: _or_ttl(retention_reached_seconds(), settings),
        close=close,
        keys=keys,
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


def _open_pool(settings: Settings, clock: Clock, metrics: Metrics, keys: KeyBook | None) -> BreakerTier:
    """The DRAM pool: a Redis when one is named, else memory of this process; a breaker before either."""
    pool = settings.pool
    if pool.redis_url is None:
        memory = MemoryTier(
            clock=clock, observer=metrics, ttl_seconds=pool.ttl_seconds, budget_bytes=pool.budget_bytes, name="dram"
        )
        return BreakerTier(_sealed(memory, keys, metrics), clock, jitter=_jitter)
    redis = RedisTier(
        url=pool.redis_url.get_secret_value(),
        clock=clock,
        observer=metrics,
        ttl_seconds=pool.ttl_seconds,
        prefix=pool.key_prefix,
        timeout_seconds=pool.timeout_seconds,
    )
    return BreakerTier(_sealed(redis, keys, metrics), clock, jitter=_jitter)


def _jitter() -> float:
    """A number in [0, 1), so that many services do not probe a recovering Redis at one moment."""
    return secrets.randbelow(1 << 20) / (1 << 20)
