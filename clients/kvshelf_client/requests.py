"""What can be asked of a service: one class a verb, whatever the transport. All fields have been checked.

``Request[Answer]`` says what the answer to it is. Namespaces are named; keys and hashes have 32 bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar

from kvshelf_client.answers import HashedTokens, Health, Lease, LocalAddress, Namespace, PlanAnswer, StoreResult, short
from kvshelf_client.request_ids import id_of_call
from kvshelf_client.words import Provenance, RecordClass

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kvshelf_client.transport import Sink

Answer = TypeVar("Answer", covariant=True)

OWN_HASH_SCHEME = "kvshelf-sha256"


@dataclass(frozen=True)
class NamespaceSpec:
    """What a namespace is made of; two with one field apart share nothing.

    Args:
        tenant: None for the tenant of the client's token, and for ``default`` where the service asks for none.
        profile: a profile's id, or a whole profile as its fields.
        block_tokens: tokens a block; a multiple of the profile's ``boundary_multiple_tokens``.
        bytes_per_token: shrinks the records to this many bytes a token, for load tests; None for the real sizes.
        hash_scheme: ``kvshelf-sha256``, or the engine's own name for how it hashes.
        hash_block_tokens: tokens under one of the engine's hashes, a divisor of ``block_tokens``; None for the same.
        shards: tensor-parallel ranks that hold different bytes.
    """

    tenant: str | None
    model: str
    weights_revision: str
    profile: str | dict[str, object]
    block_tokens: int = 128
    bytes_per_token: int | None = None
    hash_scheme: str = OWN_HASH_SCHEME
    hash_block_tokens: int | None = None
    salt: str = field(default="", repr=False)
    shards: int = 1


class StoreRecord(NamedTuple):
    """A record to store. The payload is sent from where it is: leave it unchanged until the store has returned.

    ``end_tokens`` is the end of the block, or the boundary of the snapshot, from the start of the prompt.
    """

    record_class: RecordClass
    key: bytes
    end_tokens: int
    payload: "Buffer"
    provenance: Provenance
    shard: int = 0

    def __repr__(self) -> str:
        """Without the payload, and no more of the key than tells records apart."""
        return (
            f"StoreRecord({self.record_class!r}, {short(self.key)}, end_tokens={self.end_tokens}, shard={self.shard})"
        )


@dataclass(frozen=True, slots=True)
class Request(Generic[Answer]):
    """A verb with its arguments. ``may_repeat``: sent twice it does what it does sent once.

    ``call_id`` is what the call is known by on both sides, however often it is sent.
    """

    verb: ClassVar[str]
    may_repeat: ClassVar[bool] = True
    call_id: str = field(default_factory=id_of_call, kw_only=True, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Register(Request[Namespace]):
    """Make a namespace, or find that it is there and alike."""

    verb: ClassVar[str] = "register"
    name: str
    spec: NamespaceSpec


@dataclass(frozen=True, slots=True)
class HashTokens(Request[HashedTokens]):
    """Let the service hash ``tokens``, raw u32 little-endian."""

    verb: ClassVar[str] = "hash_tokens"
    namespace: str
    tokens: "Buffer" = field(repr=False)


@dataclass(frozen=True, slots=True)
class AskPlan(Request[PlanAnswer]):
    """Ask how a prompt resumes: ``tokens`` (raw u32 little-endian), or ``hashes`` one after the other.

    What is None takes the service's default. ``supports`` are abilities, as in the REST face. ``extra`` goes with
    ``tokens`` only.
    """

    verb: ClassVar[str] = "plan"
    namespace: str
    prompt_tokens: int
    request_id: str
    tokens: "Buffer | None" = field(default=None, repr=False)
    hashes: "Buffer | None" = field(default=None, repr=False)
    hbm_tokens: int | None = None
    hbm_exact_tokens: int | None = None
    hbm_state: bool | None = None
    allow_approximate: bool | None = None
    supports: Sequence[str] | None = None
    max_load_bytes_per_saved_token: float | None = None
    lease_ttl_seconds: float | None = None
    extra: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Fetch(Request[None]):
    """Read what a lease holds into ``sink``: of one shard, or of all in order. ``fallback`` asks for the fallback."""

    verb: ClassVar[str] = "fetch"
    lease_id: str
    sink: "Sink"
    shard: int | None = None
    fallback: bool = False


@dataclass(frozen=True, slots=True)
class Store(Request[StoreResult]):
    """Keep records: frames of ``length_bytes``. ``supersedes`` is the key of the session's previous snapshot."""

    verb: ClassVar[str] = "store"
    may_repeat: ClassVar[bool] = False
    namespace: str
    records: Sequence[StoreRecord] = field(repr=False)
    length_bytes: int
    plan_id: str | None = None
    durable: bool = True
    supersedes: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TouchRecords(Request[int]):
    """Renew the life of records, all shards of each; the answer is how many were there."""

    verb: ClassVar[str] = "touch"
    namespace: str
    record_class: RecordClass
    keys: Sequence[bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class DeleteRecords(Request[int]):
    """Forget records, all shards of each; the answer is how many were there."""

    verb: ClassVar[str] = "delete"
    namespace: str
    record_class: RecordClass
    keys: Sequence[bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Renew(Request[Lease]):
    """Let a lease live on from now."""

    verb: ClassVar[str] = "renew"
    lease_id: str


@dataclass(frozen=True, slots=True)
class Release(Request[dict[str, int] | None]):
    """Give a lease back; ``ran`` is ``plan``, ``fallback`` or ``cold``.

    The answer is the prompt's tokens by source, None when an earlier try was heard already.
    """

    verb: ClassVar[str] = "release"
    lease_id: str
    ran: str = "plan"


@dataclass(frozen=True, slots=True)
class Stats(Request[dict[str, object]]):
    """What the service says of itself."""

    verb: ClassVar[str] = "stats"


@dataclass(frozen=True, slots=True)
class CheckHealth(Request[Health]):
    """Whether the service is well."""

    verb: ClassVar[str] = "health"


@dataclass(frozen=True, slots=True)
class FindLocal(Request[LocalAddress]):
    """Where the local path is. Of the REST face alone; a service without one answers that there is no such thing."""

    verb: ClassVar[str] = "find_local"
