"""One erasure: what was asked, how far it is, and, in the end, its receipt."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kvshelf_client.words import RecordClass
from service.erasure.scope import ErasureScope, scope_from_document
from service.namespaces import Namespace

NOT_GUARANTEED = (
    "what a drive keeps of pages that it has written anew elsewhere: drop the tenant's encryption key for that",
    "snapshots and backups of the file system, and persistence that was switched on in Redis",
    "what engines hold in their own memory, and answers that were on their way",
    "ids, sizes and times of the records in unused pages of the index, until those are used again; no payload is there",
)
"""What a receipt says that erasing does not reach."""


_CLASSES = tuple(one.name.lower() for one in RecordClass)


class ErasureState(StrEnum):
    """How far a job is."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """A tier is away, or a lease holds what is to be wiped: it goes on by itself."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Target:
    """A namespace, as far as erasing it takes: it may be forgotten by then."""

    name: str
    tenant: str
    namespace_id: str
    shards: int

    @classmethod
    def of(cls, namespace: Namespace) -> "Target":
        """The target that a namespace is."""
        return cls(namespace.name, namespace.spec.tenant, namespace.namespace_id.hex(), namespace.shards)


@dataclass(slots=True)
class ErasureJob:
    """See the module. Changed by the eraser alone; times are wall-clock seconds.

    ``owner`` is the tenant that asked, None where there are none. ``records`` and ``payload_bytes`` are counted by
    class as they go; bytes are those that were stored, sealed ones where records are. A job that was cut off by a
    restart begins anew and counts on.
    """

    job_id: str
    owner: str | None
    scope: ErasureScope
    targets: Sequence[Target]
    created_at: float
    is_dry_run: bool = False
    forgets: bool = False
    """Whether the namespaces themselves go, too."""
    wipes: bool = True
    state: ErasureState = ErasureState.QUEUED
    step: str = ""
    trouble: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    leases_ended: int = 0
    records: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_CLASSES, 0))
    payload_bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_CLASSES, 0))
    wiped_bytes: int = 0
    unwiped_segments: int = 0
    """Segments that leases held all the time: earlier copies may be left there."""

    def document(self) -> dict[str, Any]:
        """The job as it is shown and kept; once it is done, its receipt."""
        return {
            "erasure_id": self.job_id,
            "state": self.state.value,
            "step": self.step,
            "trouble": self.trouble,
            "asked": {
                **self.scope.document(),
                "dry_run": self.is_dry_run,
                "forget_namespaces": self.forgets,
                "wipe": self.wipes,
            },
            "namespaces": [{"name": one.name, "tenant": one.tenant} for one in self.targets],
            "records": dict(self.records),
            "payload_bytes": dict(self.payload_bytes),
            "wiped_bytes": self.wiped_bytes,
            "unwiped_segments": self.unwiped_segments,
            "leases_ended": self.leases_ended,
            "created_at": self.created_at,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "not_guaranteed": list(NOT_GUARANTEED),
        }

    def kept(self) -> dict[str, Any]:
        """The job as it is kept over restarts."""
        own = [[one.name, one.tenant, one.namespace_id, one.shards] for one in self.targets]
        return {**self.document(), "owner": self.owner, "scope": self.scope.document(), "targets": own}


def job_from_kept(document: dict[str, Any]) -> ErasureJob:
    """The inverse of :meth:`ErasureJob.kept`. Raises KeyError, TypeError or ValueError on what is none."""
    asked = document["asked"]
    return ErasureJob(
        job_id=document["erasure_id"],
        owner=document["owner"],
        scope=scope_from_document(document["scope"]),
        targets=[Target(*fields) for fields in document["targets"]],
        created_at=document["created_at"],
        is_dry_run=asked["dry_run"],
        forgets=asked["forget_namespaces"],
        wipes=asked["wipe"],
        state=ErasureState(document["state"]),
        step=document["step"],
        trouble=document["trouble"],
        started_at=document["started_at"],
        finished_at=document["finished_at"],
        leases_ended=document["leases_ended"],
        records=document["records"],
        payload_bytes=document["payload_bytes"],
        wiped_bytes=document["wiped_bytes"],
        unwiped_segments=document["unwiped_segments"],
    )
