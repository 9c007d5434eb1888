"""The background work: leases that end, touches that are written, space that is taken back."""

import threading
from collections.abc import Callable, Sequence

import structlog

from service.shelf.condition import Health, health
from service.shelf.finishing import expire_leases
from service.shelf.parts import Parts

_LOG = structlog.get_logger("kvshelf.upkeep")


def upkeep_step(parts: Parts) -> None:
    """One bounded step of all upkeep."""
    expire_leases(parts)
    parts.blocks.maintain()
    parts.snapshots.maintain()
    parts.access.refresh()
    if parts.keys is not None:
        parts.keys.refresh()


def tell_of_change(before: Health, now: Health) -> Health:
    """One line in the log each time the service's health changes, and none in between."""
    if now != before:
        tell = _LOG.info if now.status == "ok" else _LOG.warning
        tell("health_changed", status=now.status, causes=list(now.causes))
    return now


class Upkeep:
    """A thread that does a step every ``interval_seconds`` until it is stopped.

    ``beside`` are further steps, of what is no part of the service itself.
    """

    def __init__(self, parts: Parts, beside: Sequence[Callable[[], None]] = (), interval_seconds: float = 1.0) -> None:
        self._parts = parts
        self._beside = beside
        self._interval_seconds = interval_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvshelf-upkeep", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for the step under way."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        state = Health("ok", ())
        while not self._stop.wait(self._interval_seconds):
            try:
                upkeep_step(self._parts)
                for step in self._beside:
                    step()
                state = tell_of_change(state, health(self._parts))
            except Exception:  # noqa: BLE001 - a failed step is logged and tried again: without upkeep the tiers fill up.
                _LOG.exception("upkeep_failed")
