"""The JSON documents of the REST face, as OpenAPI shows them. Keys and fingerprints are lower-case hexadecimal."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from kvshelf_client.words import MissReason
from service.metrics.labels import StoreOutcome, StoreReason

MAX_JSON_TOKENS = 1 << 20
"""Whoever sends more of them sends them raw: to decode JSON keeps everybody else waiting."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NamespaceAnswer(BaseModel):
    """A registered namespace, with what its profile comes to. Record bytes are those of one shard."""

    name: str
    fingerprint: str = Field(description="SHA-256 over the canonical encoding; the start of every key chain.")
    tenant: str
    model: str
    weights_revision: str
    layout_id: str
    layout_digest: str = Field(description="SHA-256 of the layout; a part of the fingerprint.")
    block_tokens: int
    hash_scheme: str
    hash_block_tokens: int | None
    hashes_per_block: int
    salt: str
    shards: int
    block_bytes: int
    snapshot_bytes: int
    window_tokens: int
    state_layers: int
    replay: Literal["bounded", "exact", "none"]
    decoder_window_tokens: int


class NamespaceList(BaseModel):
    """All namespaces, by name."""

    namespaces: list[NamespaceAnswer]


class HashAnswer(BaseModel):
    """The keys the service gives to a token list. An engine that gets others must not use this namespace."""

    fingerprint: str
    block_tokens: int
    keys: list[str]


class TokensBody(_Body):
    """A token list for the hash self-test."""

    tokens: list[int] = Field(description="Token ids, each below 2**32.")


class PlanBody(_Body):
    """A prompt as JSON: its tokens, or its length and hashes. Raw bodies are faster."""

    tokens: list[int] | None = Field(
        None, max_length=MAX_JSON_TOKENS, description="Token ids, each below 2**32; longer prompts are sent raw."
    )
    prompt_tokens: int | None = Field(None, description="The prompt's length; needed with `hashes`.")
    hashes: list[str] | None = Field(None, description="One hash a full block (or sub-block), in order.")


class LoadAnswer(BaseModel):
    """What a plan loads."""

    model_config = ConfigDict(serialize_by_alias=True, populate_by_name=True)

    global_: list[int] = Field(alias="global", description="[start, end) in tokens; empty when start = end.")
    snapshot: int | None = Field(description="The boundary of the snapshot, or null.")


class LoadBytes(BaseModel):
    """Bytes to load by tier, all shards together."""

    ssd: int
    dram: int


class ResumeAnswer(BaseModel):
    """A resume plan. The engine runs [run_start, prompt_tokens) and rewrites no global KV below write_floor."""

    plan_id: str
    mode: Literal["full_attention", "resident", "snapshot", "bounded_replay", "exact_rebuild", "cold"]
    exact: bool
    prompt_tokens: int
    matched_tokens: int
    run_start: int
    write_floor: int
    decoder_run_start: int
    replayed_tokens: int
    saved_tokens: int
    held_tokens: int
    load: LoadAnswer
    load_bytes: LoadBytes
    tokens_by_source: dict[str, int]


class LeaseAnswer(BaseModel):
    """The lease: the request's handle. Release it when the request has run."""

    lease_id: str
    ttl_seconds: float
    records: int
    bytes: int = Field(description="Payload bytes that the plan loads, all shards together.")


class MissingGlobal(BaseModel):
    """Why the global KV ends where it does."""

    tokens: int
    reason: MissReason


class MissingSnapshot(BaseModel):
    """Why the deepest boundary that was looked at has no snapshot."""

    boundary_tokens: int
    reason: MissReason


class Reasons(BaseModel):
    """What is missing and why; null where nothing is."""

    model_config = ConfigDict(serialize_by_alias=True, populate_by_name=True)

    global_: MissingGlobal | None = Field(alias="global")
    snapshot: MissingSnapshot | None


class PlanAnswer(BaseModel):
    """A plan, its fallback when it uses a snapshot, its lease, and the reasons for what is missing."""

    request_id: str
    fingerprint: str = Field(description="The namespace's.")
    lease: LeaseAnswer
    plan: ResumeAnswer
    fallback: ResumeAnswer | None
    hit_tokens: int
    exact_hit_tokens: int
    reasons: Reasons


class OutcomeAnswer(BaseModel):
    """What became of one record."""

    model_config = ConfigDict(serialize_by_alias=True, populate_by_name=True)

    key: str
    shard: int
    class_: Literal["block", "snapshot"] = Field(alias="class")
    outcome: StoreOutcome
    reason: StoreReason
    provenance: Literal["replayed", "exact"] | None
    generation: int


class StoreAnswer(BaseModel):
    """One outcome a record, in the order sent."""

    outcomes: list[OutcomeAnswer]
    counts: dict[str, int]
    plan_known: bool = Field(description="Whether the named plan is remembered; if not, exact claims were lowered.")


class KeysBody(_Body):
    """Records of one class, all shards of each."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    class_: Literal["block", "snapshot"] = Field(alias="class")
    keys: list[str]


class CountAnswer(BaseModel):
    """How many records it was."""

    records: int


class ReleaseAnswer(BaseModel):
    """The tokens of the released request by source, by the plan that ran."""

    tokens_by_source: dict[str, int]


class LocalAnswer(BaseModel):
    """Where the local path is."""

    protocol: int = Field(description="Version of the local protocol.")
    socket: str = Field(description="Absolute path of the UNIX socket.")
    instance: str = Field(description="What this process of the service is called: 32 hexadecimal digits.")


class HealthAnswer(BaseModel):
    """Health with its causes."""

    status: Literal["ok", "degraded", "down"]
    causes: list[str]
