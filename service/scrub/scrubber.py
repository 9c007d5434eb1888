"""Goes through all blocks in the order of their ids, at a bounded rate, and reads each of them."""

import threading
from dataclasses import asdict, dataclass
from typing import Any

import structlog

from kvshelf_client.words import MissReason
from service.metrics import Metrics
from service.settings import ScrubSettings
from storage.base import Miss, Tier, TierAwayError
from storage.catalog import Catalog, CatalogError
from storage.clock import Clock

STEP_RECORDS = 64
SAVE_SECONDS = 60.0
_NAME = "scrub"
_LOG = structlog.get_logger("kvshelf.scrub")


@dataclass(slots=True)
class Pass:
    """How far scrubbing is. Times are wall-clock seconds; ``cursor`` is None while no pass is under way.

    The counts are of the pass under way, or of the last one. ``live_bytes`` is what there was when it began.
    """

    cursor: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    records: int = 0
    payload_bytes: int = 0
    corrupt: int = 0
    live_bytes: int = 0

    @property
    def progress(self) -> float:
        """How much of it is done, 0 to 1."""
        if self.cursor is None:
            return 1.0 if self.completed_at is not None else 0.0
        return min(1.0, self.payload_bytes / self.live_bytes) if self.live_bytes else 0.0


class Scrubber:
    """Scrubs when it is time and when it is asked to. A pass goes on where it was after a restart.

    Args:
        tier: is read, as any reader does: what is damaged is dropped by that, and counted there.
        clock: when it is time.
        settings: how fast, how often.
        metrics: told what was read.
        catalog: keeps how far it is.

    Raises:
        CatalogError: what was kept cannot be read.
    """

    def __init__(self, tier: Tier, clock: Clock, settings: ScrubSettings, metrics: Metrics, catalog: Catalog) -> None:
        self._tier, self._clock, self._settings, self._metrics, self._catalog = tier, clock, settings, metrics, catalog
        self._stop = threading.Event()
        self._asked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvshelf-scrub", daemon=True)
        self._saved_at = clock.monotonic()
        if _NAME in catalog.names():
            self._pass = Pass(**catalog.read(_NAME))
        else:
            self._pass = Pass(completed_at=clock.now())
            self._save()
        self._tell()

    @property
    def is_on(self) -> bool:
        """Whether it scrubs at all."""
        return self._settings.bytes_per_second > 0

    def start(self) -> None:
        """Start the thread."""
        if self.is_on:
            self._thread.start()

    def stop(self) -> None:
        """Stop after the step under way, and keep how far it is."""
        self._stop.set()
        self._asked.set()
        if self._thread.is_alive():
            self._thread.join()

    def ask(self) -> None:
        """Begin a pass now, unless one is under way."""
        self._asked.set()

    def document(self) -> dict[str, Any]:
        """How far it is, as it is shown."""
        document = asdict(self._pass)
        is_running = document.pop("cursor") is not None
        return {
            "state": "running" if is_running or self._asked.is_set() else "idle" if self.is_on else "off",
            "progress": self._pass.progress,
            **document,
        }

    def step(self) -> int:
        """Read the next records of a pass, of a new one if it is time; returns how many bytes. 0: nothing to do.

        Raises:
            TierAwayError: the tier cannot be gone through.
        """
        if self._pass.cursor is None and not self._begin():
            return 0
        now = self._pass
        page = self._tier.scan(b"", bytes.fromhex(now.cursor or ""), STEP_RECORDS)
        hold = self._tier.hold([entry.id for entry in page.entries])
        try:
            misses = [one for one in hold.reread(0, len(page.entries)) if isinstance(one, Miss)]
        finally:
            hold.release()
        corrupt = sum(one.reason is MissReason.CORRUPT for one in misses)
        read_bytes = sum(entry.length_bytes for entry in page.entries)
        now.records += len(page.entries)
        now.payload_bytes += read_bytes
        now.corrupt += corrupt
        self._metrics.scrubbed_bytes.inc(read_bytes)
        self._metrics.scrub_corrupt.inc(corrupt)
        now.cursor = page.cursor.hex() if page.cursor is not None else None
        if now.cursor is None:
            self._finish()
        elif self._clock.monotonic() - self._saved_at >= SAVE_SECONDS:
            self._save()
        self._tell()
        return max(read_bytes, 1)

    def _begin(self) -> bool:
        is_due = self._clock.now() - (self._pass.completed_at or 0.0) >= self._settings.interval_seconds
        if not is_due and not self._asked.is_set():
            return False
        self._pass = Pass("", self._clock.now(), self._pass.completed_at, live_bytes=self._tier.usage().live_bytes)
        return True

    def _finish(self) -> None:
        self._asked.clear()
        self._pass.completed_at = self._clock.now()
        self._save()
        _LOG.info("scrub_done", records=self._pass.records, corrupt=self._pass.corrupt)

    def _save(self) -> None:
        self._saved_at = self._clock.monotonic()
        try:
            self._catalog.write(_NAME, asdict(self._pass))
        except CatalogError as error:
            _LOG.warning("scrub_not_kept", reason=str(error))

    def _tell(self) -> None:
        self._metrics.scrub_progress.set(self._pass.progress)
        self._metrics.scrub_completed.set(self._pass.completed_at or 0.0)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                read_bytes = self.step()
            except TierAwayError:
                read_bytes = 0
            except Exception:  # noqa: BLE001 - a failed step is logged and tried again
                _LOG.exception("scrub_failed")
                read_bytes = 0
            self._stop.wait(read_bytes / self._settings.bytes_per_second if read_bytes else 1.0)
        if self._pass.cursor is not None:
            self._save()
