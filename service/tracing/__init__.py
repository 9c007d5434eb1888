"""OpenTelemetry traces: nothing of it is imported, and nothing is paid, unless the settings ask for it."""

from service.settings import Settings
from service.tracing.base import Tracing
from storage.clock import Clock

__all__ = ["Tracing", "TracingUnavailableError", "open_tracing"]


class TracingUnavailableError(ValueError):
    """Traces are configured, and the packages for them are not installed."""


def open_tracing(settings: Settings, version: str, clock: Clock) -> Tracing | None:
    """What makes spans and sends them off, to be closed; None where the settings ask for none.

    Raises:
        TracingUnavailableError: see there.
    """
    if settings.tracing.exporter == "none":
        return None
    try:
        from service.tracing.spans import Spans
    except ImportError as error:
        raise TracingUnavailableError(
            f"tracing.exporter = {settings.tracing.exporter!r} takes the extra `tracing`"
            f" (pip install 'kvshelf[tracing]'): {error}"
        ) from None
    return Spans(settings.tracing, version, clock)
