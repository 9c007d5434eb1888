"""What the service answers, as typed results; the REST face's JSON, decoded and checked.

Fields that this version does not know are ignored, so that a newer service can say more.
"""

from typing import NamedTuple

from kvshelf_client.documents import Document
from kvshelf_client.errors import AnswerError, Fault
from kvshelf_client.words import MissReason, RecordClass


def short(key: bytes) -> str:
    """The first 12 hexadecimal digits of a key, as in the service's log: who has a whole one can ask for its record."""
    return bytes(key[:6]).hex()


class Namespace(NamedTuple):
    """A registered namespace and the sizes its records have. Bytes are those of one shard."""

    name: str
    fingerprint: bytes
    block_tokens: int
    hashes_per_block: int
    shards: int
    block_bytes: int
    snapshot_bytes: int
    window_tokens: int
    state_layers: int
    decoder_window_tokens: int
    hash_scheme: str
    created: bool
    """True when this registration made it, False when it was there already."""

    def bytes_of(self, record_class: RecordClass) -> int:
        """The length of a record of a class."""
        return self.block_bytes if record_class is RecordClass.BLOCK else self.snapshot_bytes


class HashedTokens(NamedTuple):
    """The service's own hashing of a token list, to compare an engine's with. One key a full block."""

    fingerprint: bytes
    block_tokens: int
    keys: list[bytes]

    def __repr__(self) -> str:
        """Without the keys."""
        return f"HashedTokens({short(self.fingerprint)}, block_tokens={self.block_tokens}, {len(self.keys)} keys)"


class Lease(NamedTuple):
    """What a plan keeps readable, for ``ttl_seconds`` from its last use."""

    lease_id: str
    ttl_seconds: float
    records: int


class Load(NamedTuple):
    """What a plan loads: the blocks of tokens ``[global_start, global_end)``, and a snapshot or None."""

    global_start: int
    global_end: int
    snapshot_boundary: int | None
    ssd_bytes: int
    dram_bytes: int


class Resume(NamedTuple):
    """How one request resumes: load ``load``, then run tokens ``[run_start, prompt_tokens)``.

    ``write_floor`` is the end below which nothing is stored again; ``tokens_by_source`` sums to ``prompt_tokens``.
    ``plan_id`` is what a store names; None where the service made no such plan, see :mod:`kvshelf_client.plans`.
    """

    plan_id: str | None
    mode: str
    exact: bool
    prompt_tokens: int
    matched_tokens: int
    run_start: int
    write_floor: int
    decoder_run_start: int
    replayed_tokens: int
    saved_tokens: int
    held_tokens: int
    load: Load
    tokens_by_source: dict[str, int]


class MissingGlobal(NamedTuple):
    """Why the stored prefix ends at ``tokens``."""

    tokens: int
    reason: MissReason


class MissingSnapshot(NamedTuple):
    """Why no snapshot was found at ``boundary_tokens``."""

    boundary_tokens: int
    reason: MissReason


class PlanAnswer(NamedTuple):
    """The answer to a plan: how to resume, what to do when its snapshot is gone, and the lease that holds both.

    ``hit_tokens`` is the stored prefix, uncapped; ``exact_hit_tokens`` the same counting exact blocks only.
    ``fingerprint`` is the namespace's, 32 bytes; None from a service that does not say it.
    """

    request_id: str
    resume: Resume
    fallback: Resume | None
    lease: Lease
    hit_tokens: int
    exact_hit_tokens: int
    missing_global: MissingGlobal | None
    missing_snapshot: MissingSnapshot | None
    fingerprint: bytes | None = None


class StoreOutcome(NamedTuple):
    """What became of one record of a store. ``reason`` says why a record was refused."""

    key: bytes
    shard: int
    record_class: str
    outcome: str
    reason: str | None
    provenance: str | None
    generation: int

    def __repr__(self) -> str:
        """No more of the key than tells records apart."""
        why = "" if self.reason is None else f", reason={self.reason!r}"
        return f"StoreOutcome({self.record_class!r}, {short(self.key)}, shard={self.shard}, {self.outcome!r}{why})"


class StoreResult(NamedTuple):
    """The outcomes of a store in the order sent, and how many there were of each.

    ``plan_known`` is False when the store named no plan, or one that is not known (then nothing is exact). ``fault`` is
    why there was no answer; take no record as kept then. ``request_id`` is what it is called in the service's log.
    """

    outcomes: list[StoreOutcome]
    counts: dict[str, int]
    plan_known: bool
    fault: Fault | None = None
    request_id: str | None = None


class LocalAddress(NamedTuple):
    """Where a service says that its local socket is, and the 16 bytes that it is called by until it ends."""

    protocol: int
    socket: str
    instance: bytes


class Health(NamedTuple):
    """``status`` is ``ok``, ``degraded`` or ``down``; ``causes`` say why it is not ``ok``."""

    status: str
    causes: list[str]


def resume_of(document: Document) -> Resume:
    """Decode a plan's or a fallback's fields."""
    load, load_bytes = document.inner("load"), document.inner("load_bytes")
    start, end = load.integer_pair("global")
    return Resume(
        plan_id=document.text("plan_id"),
        mode=document.text("mode"),
        exact=document.flag("exact"),
        prompt_tokens=document.integer("prompt_tokens"),
        matched_tokens=document.integer("matched_tokens"),
        run_start=document.integer("run_start"),
        write_floor=document.integer("write_floor"),
        decoder_run_start=document.integer("decoder_run_start"),
        replayed_tokens=document.integer("replayed_tokens"),
        saved_tokens=document.integer("saved_tokens"),
        held_tokens=document.integer("held_tokens"),
        load=Load(
            start,
            end,
            load.integer("snapshot") if load.has("snapshot") else None,
            load_bytes.integer("ssd"),
            load_bytes.integer("dram"),
        ),
        tokens_by_source=document.counts("tokens_by_source"),
    )


def plan_of(document: Document) -> PlanAnswer:
    """Decode the answer to a plan."""
    return PlanAnswer(
        request_id=document.text("request_id"),
        resume=resume_of(document.inner("plan")),
        fallback=resume_of(document.inner("fallback")) if document.has("fallback") else None,
        lease=lease_of(document.inner("lease")),
        hit_tokens=document.integer("hit_tokens"),
        exact_hit_tokens=document.integer("exact_hit_tokens"),
        missing_global=_missing_global(document.inner("reasons")),
        missing_snapshot=_missing_snapshot(document.inner("reasons")),
        fingerprint=document.raw("fingerprint") if document.has("fingerprint") else None,
    )


def lease_of(lease: Document) -> Lease:
    """Decode a lease."""
    return Lease(lease.text("lease_id"), lease.number("ttl_seconds"), lease.integer("records"))


def _missing_global(reasons: Document) -> MissingGlobal | None:
    if not reasons.has("global"):
        return None
    missing = reasons.inner("global")
    return MissingGlobal(missing.integer("tokens"), missing.reason("reason"))


def _missing_snapshot(reasons: Document) -> MissingSnapshot | None:
    if not reasons.has("snapshot"):
        return None
    missing = reasons.inner("snapshot")
    return MissingSnapshot(missing.integer("boundary_tokens"), missing.reason("reason"))


def namespace_of(document: Document, created: bool) -> Namespace:
    """Decode the answer to a registration."""
    return Namespace(
        name=document.text("name"),
        fingerprint=document.raw("fingerprint"),
        block_tokens=document.integer("block_tokens"),
        hashes_per_block=document.integer("hashes_per_block"),
        shards=document.integer("shards"),
        block_bytes=document.integer("block_bytes"),
        snapshot_bytes=document.integer("snapshot_bytes"),
        window_tokens=document.integer("window_tokens"),
        state_layers=document.integer("state_layers"),
        decoder_window_tokens=document.integer("decoder_window_tokens"),
        hash_scheme=document.text("hash_scheme"),
        created=created,
    )


def hashed_tokens_of(document: Document) -> HashedTokens:
    """Decode the answer to a hashing self-test."""
    try:
        keys = [bytes.fromhex(str(key)) for key in document.items("keys")]
    except ValueError:
        raise AnswerError("answer.keys holds something that is no hex string") from None
    return HashedTokens(document.raw("fingerprint"), document.integer("block_tokens"), keys)


def store_result_of(document: Document) -> StoreResult:
    """Decode the answer to a store."""
    outcomes = [
        StoreOutcome(
            key=item.raw("key"),
            shard=item.integer("shard"),
            record_class=item.text("class"),
            outcome=item.text("outcome"),
            reason=item.text("reason") if item.has("reason") else None,
            provenance=item.text("provenance") if item.has("provenance") else None,
            generation=item.integer("generation") if item.has("generation") else 0,
        )
        for item in document.documents("outcomes")
    ]
    return StoreResult(outcomes, document.counts("counts"), document.flag("plan_known"))


def count_of(document: Document) -> int:
    """Decode how many records it was."""
    return document.integer("records")


def released_of(document: Document) -> dict[str, int]:
    """Decode how the tokens of a released request were counted."""
    return document.counts("tokens_by_source")


def health_of(document: Document) -> Health:
    """Decode the state of health."""
    return Health(document.text("status"), [str(cause) for cause in document.items("causes")])


def local_address_of(document: Document) -> LocalAddress:
    """Decode where the local path is."""
    return LocalAddress(document.integer("protocol"), document.text("socket"), document.raw("instance"))
