"""The keys in force."""

from collections.abc import Callable, Mapping

import structlog

from service.sealing.source import KeySource, KeySourceError
from storage.clock import Clock
from storage.sealed import TenantKeys

_LOG = structlog.get_logger("kvshelf.sealing")


class KeyBook:
    """The keys by tenant, read again every ``refresh_seconds``. A source that cannot be used changes nothing.

    Thread-safe: the keys are replaced as a whole.

    Args:
        source: where they come from.
        clock: when it is time (monotonic).
        refresh_seconds: see the setting.
        tenant_of: the tenant of a namespace by its id; None where the namespace is not known.

    Raises:
        KeySourceError: they cannot be read at all.
    """

    def __init__(
        self, source: KeySource, clock: Clock, *, refresh_seconds: float, tenant_of: Callable[[bytes], str | None]
    ) -> None:
        self._source = source
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._tenant_of = tenant_of
        self._trouble: str | None = None
        self._keys = source.read()
        self._read_at = clock.monotonic()

    def keys_of(self, namespace_id: bytes) -> TenantKeys | None:
        """The keys of the tenant of a namespace; None where it has none."""
        tenant = self._tenant_of(namespace_id)
        return None if tenant is None else self._keys.get(tenant)

    def refresh(self) -> None:
        """Read the keys again if it is time. One line in the log for each change and each new trouble."""
        if self._clock.monotonic() - self._read_at < self._refresh_seconds:
            return
        self._read_at = self._clock.monotonic()
        try:
            keys = self._source.read()
        except KeySourceError as error:
            if self._trouble is None:
                _LOG.error("keys_unusable", reason=str(error))
            self._trouble = "the encryption keys cannot be read; those read before stay in force"
            return
        self._trouble = None
        before, now = _numbers(self._keys), _numbers(keys)
        self._keys = keys
        for tenant in sorted(before.keys() | now.keys()):
            if before.get(tenant) != now.get(tenant):
                _LOG.warning("keys_changed", tenant=tenant, before=before.get(tenant, []), now=now.get(tenant, []))

    def trouble(self) -> str | None:
        """What is wrong with the source; None while it can be read."""
        return self._trouble


def _numbers(keys: Mapping[str, TenantKeys]) -> dict[str, list[int]]:
    return {tenant: own.numbers for tenant, own in keys.items()}
