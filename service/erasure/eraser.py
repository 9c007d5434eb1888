"""Does the erasures, one after the other, in a thread of its own.

A job ends the leases of whole namespaces, goes through both tiers until nothing of its scope is found any more, and
then has the SSD tier write over all space that no record has, so that earlier copies are gone, too.
"""

import threading
from collections.abc import Sequence

import structlog

from kvshelf_client.words import Provenance, RecordClass
from service.erasure.book import ErasureBook
from service.erasure.job import ErasureJob, ErasureState, Target
from service.namespaces.namespace import KEPT_KEY_BYTES
from service.shelf.finishing import end_leases
from service.shelf.parts import Parts
from service.shelf.records import tier_of
from storage.base import Entry, RecordId, TierAwayError
from storage.catalog import CatalogError

PAGE_RECORDS = 256
RETRY_SECONDS = 1.0

_LOG = structlog.get_logger("kvshelf.erasure")


class Eraser:
    """Works through the book's jobs.

    Args:
        parts: the service.
        book: its jobs.
    """

    def __init__(self, parts: Parts, book: ErasureBook) -> None:
        self._parts = parts
        self._book = book
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvshelf-eraser", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the step under way; what is not done goes on after the next start."""
        self._stop.set()
        self._book.asked.set()
        self._thread.join()

    def run_pending(self) -> bool:
        """Do the jobs that wait; False when one of them has to be tried again later."""
        while not self._stop.is_set() and (job := self._book.next()) is not None:
            try:
                self._do(job)
            except (TierAwayError, CatalogError) as error:
                if job.trouble != str(error):
                    _LOG.warning("erasure_waits", erasure_id=job.job_id, reason=str(error))
                job.state, job.trouble = ErasureState.WAITING, str(error)
                return False
        return True

    def _run(self) -> None:
        while not self._stop.is_set():
            self._book.asked.wait()
            self._book.asked.clear()
            while not self._stop.is_set() and not self._try():
                self._stop.wait(RETRY_SECONDS)

    def _try(self) -> bool:
        try:
            return self.run_pending()
        except Exception:  # noqa: BLE001 - whatever it was is logged and tried again: what was asked must be erased.
            _LOG.exception("erasure_failed")
            return False

    def _do(self, job: ErasureJob) -> None:
        job.started_at = job.started_at or self._parts.clock.now()
        job.state, job.trouble = ErasureState.RUNNING, ""
        if job.scope.is_whole and not job.is_dry_run:
            self._let_go(job)
        for target in job.targets:
            for kind in job.scope.kinds:
                job.step = f"erase {kind.name.lower()}s of {target.name}"
                self._erase(job, target, kind)
        if job.wipes and not job.is_dry_run:
            job.step = "wipe"
            self._wipe(job)
        if self._stop.is_set():
            return
        if job.forgets and not job.is_dry_run:
            for target in job.targets:
                self._parts.namespaces.remove(target.tenant, target.name)
        job.state, job.step, job.finished_at = ErasureState.DONE, "", self._parts.clock.now()
        self._book.save(job)
        _LOG.info("erasure_done", **{name: job.document()[name] for name in ("erasure_id", "records", "wiped_bytes")})

    def _let_go(self, job: ErasureJob) -> None:
        """Of whole namespaces nothing is to be stored or held any more."""
        ids = {bytes.fromhex(target.namespace_id) for target in job.targets}
        if job.forgets:
            for target in job.targets:
                self._parts.namespaces.withdraw(target.tenant, target.name)
        job.leases_ended += end_leases(self._parts, ids)

    def _erase(self, job: ErasureJob, target: Target, kind: RecordClass) -> None:
        """Go through a tier again and again until it has nothing of the scope any more."""
        if job.scope.keys:
            self._erase_entries(job, kind, self._named(job, target, kind))
            return
        tier, is_found = tier_of(self._parts, kind), True
        prefix = bytes.fromhex(target.namespace_id + job.scope.key_prefix)
        while is_found and not self._stop.is_set():
            is_found, cursor = False, b""
            while not self._stop.is_set():
                page = tier.scan(prefix, cursor, PAGE_RECORDS)
                is_found |= self._erase_entries(job, kind, page.entries)
                if page.cursor is None:
                    break
                cursor = page.cursor
            is_found &= not job.is_dry_run

    def _named(self, job: ErasureJob, target: Target, kind: RecordClass) -> list[Entry]:
        """The records of the keys, all shards of each."""
        space = bytes.fromhex(target.namespace_id)
        keys = [space + bytes.fromhex(key)[:KEPT_KEY_BYTES] for key in job.scope.keys]
        ids = [RecordId(key, shard) for key in keys for shard in range(target.shards)]
        found = tier_of(self._parts, kind).lookup(ids)
        # A miss may be a record that expired, or that cannot be opened any more: its bytes are there all the same.
        unknown = Entry(RecordId(b""), Provenance.REPLAYED, 0, 0, 0, 0.0, 0.0)
        return [one if isinstance(one, Entry) else unknown._replace(id=one.id) for one in found]

    def _erase_entries(self, job: ErasureJob, kind: RecordClass, entries: Sequence[Entry]) -> bool:
        """Erase those that are in the range of times, and count them; says whether there were any."""
        tier, name = tier_of(self._parts, kind), kind.name.lower()
        meant = [entry for entry in entries if job.scope.covers(entry.created_at)]
        if not meant:
            return False
        if not job.is_dry_run:
            tier.erase([entry.id for entry in meant])
            if any(isinstance(one, Entry) for one in tier.lookup([entry.id for entry in meant])):
                raise TierAwayError(f"the {tier.name} tier does not erase, or records come as fast as they go")
            self._parts.metrics.erased.labels(name).inc(sum(entry.generation > 0 for entry in meant))
        job.records[name] += sum(entry.generation > 0 for entry in meant)
        job.payload_bytes[name] += sum(entry.length_bytes for entry in meant)
        return True

    def _wipe(self, job: ErasureJob) -> None:
        """Write over all space of the SSD tier that no record has. What leases hold is tried again until they end."""
        held = self._wipe_from(job, 0)
        deadline = self._parts.clock.monotonic() + self._parts.settings.lease.max_ttl_seconds
        while held and not self._stop.wait(RETRY_SECONDS) and self._parts.clock.monotonic() < deadline:
            held = [cursor for cursor in held if self._wipe_one(job, cursor)]
        job.unwiped_segments = len(held)

    def _wipe_from(self, job: ErasureJob, start: int) -> list[int]:
        """Go through all parts; returns where those begin that a lease holds."""
        held, cursor = list[int](), start
        while not self._stop.is_set():
            step = self._parts.blocks.wipe(cursor)
            job.wiped_bytes += step.written_bytes
            if step.is_held:
                held.append(cursor)
            if step.cursor is None:
                break
            cursor = step.cursor
        return held

    def _wipe_one(self, job: ErasureJob, cursor: int) -> bool:
        """Try a part again that was held; says whether it still is."""
        step = self._parts.blocks.wipe(cursor)
        job.wiped_bytes += step.written_bytes
        return step.is_held
