"""All erasures, kept over restarts: those to be done, in order, and the receipts of those that are done."""

import threading

from service.access import Principal
from service.erasure.job import ErasureJob, ErasureState, job_from_kept
from storage.catalog import Catalog, CorruptDocumentError

MAX_ERASURES = 1000
"""Jobs kept, waiting and done."""
MAX_WAITING = 100
"""More jobs than that are not taken."""


class UnknownErasureError(LookupError):
    """No erasure of the caller has this id."""


class ErasureLimitError(Exception):
    """Too many erasures wait already. Try again when some are done."""


class ErasureBook:
    """Thread-safe. Past ``MAX_ERASURES`` the oldest receipt goes.

    Args:
        catalog: where jobs are kept, ``MAX_ERASURES`` at most. What it holds is loaded at once.

    Raises:
        CatalogError: a kept job is corrupt; the text names its file.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        jobs = [self._load(name) for name in catalog.names()]
        self._jobs = {job.job_id: job for job in sorted(jobs, key=lambda job: job.created_at)}
        self.asked = threading.Event()
        """Set whenever there may be something to do."""
        self.asked.set()

    def add(self, job: ErasureJob) -> None:
        """Take a job; it is durable when this returns.

        Raises:
            ErasureLimitError: see there.
            CatalogError: it cannot be kept.
        """
        with self._lock:
            if sum(one.state is not ErasureState.DONE for one in self._jobs.values()) >= MAX_WAITING:
                raise ErasureLimitError(f"{MAX_WAITING} erasures wait")
            done = [one.job_id for one in self._jobs.values() if one.state is ErasureState.DONE]
            for job_id in done[: max(0, len(self._jobs) + 1 - MAX_ERASURES)]:
                self._catalog.delete(job_id)
                del self._jobs[job_id]
            self._catalog.write(job.job_id, job.kept())
            self._jobs[job.job_id] = job
        self.asked.set()

    def save(self, job: ErasureJob) -> None:
        """Keep how far a job is. Raises CatalogError."""
        self._catalog.write(job.job_id, job.kept())

    def get(self, principal: Principal, job_id: str) -> ErasureJob:
        """A job of the caller's.

        Raises:
            UnknownErasureError: there is none; one of another tenant is none.
        """
        job = self._jobs.get(job_id)
        if job is None or not _may_see(principal, job):
            raise UnknownErasureError(job_id)
        return job

    def list(self, principal: Principal) -> "list[ErasureJob]":
        """The caller's jobs, newest first."""
        with self._lock:
            jobs = list(self._jobs.values())
        return [job for job in reversed(jobs) if _may_see(principal, job)]

    def next(self) -> ErasureJob | None:
        """The job that is to be done next; None when there is none."""
        with self._lock:
            return next((job for job in self._jobs.values() if job.state is not ErasureState.DONE), None)

    def _load(self, name: str) -> ErasureJob:
        document = self._catalog.read(name)
        try:
            return job_from_kept(document)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptDocumentError(self._catalog.directory / f"{name}.json", str(error)) from None


def _may_see(principal: Principal, job: ErasureJob) -> bool:
    return principal.is_operator or principal.tenant == job.owner
