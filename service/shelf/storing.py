"""Take records in: judge each by its namespace and the plan that ran, keep the good, say what became of each."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvshelf_client.frames import FrameHeader, FrameKind
from kvshelf_client.words import Provenance, RecordClass
from service.namespaces import Namespace
from service.planner import Ran, Refusal, judge_store
from service.shelf.fates import Fate
from service.shelf.parts import Parts
from storage.base import Payload, Record, WriteOutcome, WriteResult


@dataclass(frozen=True, slots=True)
class Upload:
    """What all records of one store share. ``ran`` is as :func:`ran_plan` makes it."""

    namespace: Namespace
    ran: Ran | None = None
    durable: bool = True
    supersedes: bytes | None = None


class Outcome(NamedTuple):
    """What became of one record: ``stored``, ``replaced``, ``duplicate``, ``refused`` or ``lost``, and why.

    It has no more of its record than what the answer says: a store keeps those of all its records until its end.
    """

    key: bytes
    shard: int
    record_class: RecordClass
    outcome: str
    reason: str
    provenance: Provenance | None = None
    generation: int = 0


_CLASSES = {FrameKind.BLOCK: RecordClass.BLOCK, FrameKind.SNAPSHOT: RecordClass.SNAPSHOT}
_OUTCOMES = {
    WriteOutcome.STORED: ("stored", "none"),
    WriteOutcome.REPLACED: ("replaced", "none"),
    WriteOutcome.DUPLICATE: ("duplicate", "none"),
    WriteOutcome.CORRUPT: ("refused", "corrupt"),
    WriteOutcome.FULL: ("refused", "full"),
    WriteOutcome.NO_KEY: ("refused", "no_key"),
    WriteOutcome.TIER_DOWN: ("lost", "tier_down"),
}


_FATES: dict[WriteOutcome, Fate] = {WriteOutcome.FULL: "refused", WriteOutcome.TIER_DOWN: "tier_down"}

UNKNOWN_PLAN = Ran(write_floor=0, exact=False, held_tokens=0, held_exact_tokens=0)
"""What is taken to have run where a store names a plan that is not known: anything, so nothing is exact."""


def ran_plan(parts: Parts, owner: str | None, namespace: Namespace, plan_id: str | None) -> Ran | None:
    """The facts of the plan that a store names, or ``UNKNOWN_PLAN``; None where it names none.

    A plan of another owner or of another namespace is not known.
    """
    if not plan_id:
        return None
    facts = parts.plans.get((owner, plan_id))
    return facts.ran if facts is not None and facts.namespace == namespace.fingerprint else UNKNOWN_PLAN


def store(parts: Parts, upload: Upload, frames: Sequence[tuple[FrameHeader, Payload]]) -> list[Outcome]:
    """Keep a batch of records; one outcome each, in order. Each tier gets its records in one commit."""
    accepted: dict[RecordClass, list[Record]] = {RecordClass.BLOCK: [], RecordClass.SNAPSHOT: []}
    judgements = [_judge(upload, header) for header, _ in frames]
    for (header, payload), judged in zip(frames, judgements, strict=True):
        if not isinstance(judged, str):
            accepted[_CLASSES[header.kind]].append(_record(upload, header, payload, judged))
    written = {kind: iter(_write(parts, kind, records, durable=upload.durable)) for kind, records in accepted.items()}
    outcomes = [
        _outcome(header, "refused", judged)
        if isinstance(judged, str)
        else _kept(header, judged, next(written[_CLASSES[header.kind]]))
        for (header, _), judged in zip(frames, judgements, strict=True)
    ]
    _count(parts, frames, outcomes)
    return outcomes


def _outcome(
    header: FrameHeader, outcome: str, reason: str, provenance: Provenance | None = None, generation: int = 0
) -> Outcome:
    return Outcome(header.key, header.shard, _CLASSES[header.kind], outcome, reason, provenance, generation)


def _kept(header: FrameHeader, provenance: Provenance, result: WriteResult) -> Outcome:
    return _outcome(header, *_OUTCOMES[result.outcome], provenance, result.generation)


def _write(parts: Parts, kind: RecordClass, records: list[Record], *, durable: bool) -> list[WriteResult]:
    """Hand records to their tier, in one commit; who is not kept is remembered."""
    if not records:
        return []
    is_pool = kind is RecordClass.SNAPSHOT
    tier = parts.snapshots if is_pool else parts.blocks
    exact = [record.id.key for record in records if is_pool and record.provenance is Provenance.EXACT]
    with parts.turns.of(exact), parts.metrics.tier_latency.labels(tier.name, "write").time():
        results = tier.write(records, durable=durable)
    for fate in _FATES.keys() & {result.outcome for result in results}:
        parts.fates.note(kind.name.lower(), [one.id for one in results if one.outcome is fate], _FATES[fate])
    return results


def _judge(upload: Upload, header: FrameHeader) -> Provenance | str:
    """The provenance a record is kept with, or the reason why it is refused."""
    namespace = upload.namespace
    kind = _CLASSES[header.kind]
    size = namespace.shard_block_bytes if kind is RecordClass.BLOCK else namespace.shard_snapshot_bytes
    if not size:
        return "wrong_class"
    if header.length_bytes != size:
        return "wrong_size"
    if header.shard >= namespace.shards:
        return "wrong_shard"
    claim = header.provenance or Provenance.REPLAYED
    allowed = judge_store(namespace.layout, upload.ran, kind, header.end_tokens, claim)
    return allowed.value if isinstance(allowed, Refusal) else allowed


def _record(upload: Upload, header: FrameHeader, payload: Payload, provenance: Provenance) -> Record:
    namespace = upload.namespace
    supersedes = None
    if header.kind is FrameKind.SNAPSHOT and upload.supersedes is not None and upload.supersedes != header.key:
        supersedes = namespace.record_id(upload.supersedes, header.shard).key
    return Record(
        namespace.record_id(header.key, header.shard),
        payload,
        header.checksum,
        provenance,
        namespace.spec.tenant,
        supersedes,
    )


def _count(parts: Parts, frames: Sequence[tuple[FrameHeader, Payload]], outcomes: Sequence[Outcome]) -> None:
    """Count what became of the records, and whose claim of being exact was lowered."""
    settled = Counter((one.record_class, one.outcome, one.reason) for one in outcomes)
    for (kind, outcome, reason), count in settled.items():
        parts.metrics.stores.labels(kind.name.lower(), outcome, reason).inc(count)
    lowered = Counter(
        one.record_class
        for (header, _), one in zip(frames, outcomes, strict=True)
        if header.provenance is Provenance.EXACT and one.provenance is Provenance.REPLAYED
    )
    for kind, count in lowered.items():
        parts.metrics.lowered.labels(kind.name.lower()).inc(count)
