"""What each request is in ``kvshelf.v1``, and what its answer means. Knows nothing of channels.

Answers go through the documents of the REST face, so that there is one place that decodes and checks them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError, Message

from kvshelf_client import answers, requests
from kvshelf_client.documents import Document
from kvshelf_client.errors import AnswerError
from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from kvshelf_client.grpc.structs import plain
from kvshelf_client.words import RecordClass

Decode = Callable[[bytes | None], Any]
"""From an encoded answer, None when none came, to the answer; raises AnswerError."""


@dataclass(frozen=True, slots=True)
class GrpcRequest:
    """A request as it is sent: the verb's name and its message, or a store's start."""

    verb: str
    message: bytes
    decode: Decode


def encode(request: requests.Request[Any]) -> GrpcRequest:
    """The gRPC request of a request; raises ValueError on a number that no message takes."""
    return _ENCODERS[type(request)](request)


def _register(request: requests.Register) -> GrpcRequest:
    spec = request.spec
    message = pb.RegisterRequest(
        name=request.name,
        tenant=spec.tenant,
        model=spec.model,
        weights_revision=spec.weights_revision,
        bytes_per_token=spec.bytes_per_token,
        block_tokens=spec.block_tokens,
        hash_scheme=spec.hash_scheme,
        hash_block_tokens=spec.hash_block_tokens,
        salt=spec.salt,
        shards=spec.shards,
    )
    if isinstance(spec.profile, str):
        message.profile_id = spec.profile
    else:
        ParseDict(spec.profile, message.profile_document)

    def read(answer: pb.Namespace) -> answers.Namespace:
        document = _fields(answer) | {"fingerprint": answer.fingerprint.hex()}
        return answers.namespace_of(Document(document), created=answer.created)

    return _sent("Register", message, pb.Namespace, read)


def _hash_tokens(request: requests.HashTokens) -> GrpcRequest:
    def read(answer: pb.HashResponse) -> answers.HashedTokens:
        return answers.HashedTokens(answer.fingerprint, answer.block_tokens, list(answer.keys))

    message = pb.HashRequest(namespace=request.namespace, tokens=bytes(request.tokens))
    return _sent("Hash", message, pb.HashResponse, read)


def _plan(request: requests.AskPlan) -> GrpcRequest:
    message = pb.PlanRequest(
        namespace=request.namespace,
        prompt_tokens=request.prompt_tokens,
        request_id=request.request_id,
        hbm_tokens=request.hbm_tokens or 0,
        hbm_exact_tokens=request.hbm_exact_tokens,
        hbm_state=bool(request.hbm_state),
        allow_approximate=request.allow_approximate,
        supports=None if request.supports is None else pb.Abilities(names=request.supports),
        max_load_bytes_per_saved_token=request.max_load_bytes_per_saved_token,
        lease_ttl_seconds=request.lease_ttl_seconds,
        extra=request.extra,
    )
    if request.tokens is not None:
        message.tokens = bytes(request.tokens)
    else:
        message.hashes = bytes(request.hashes or b"")
    return _sent("Plan", message, pb.PlanResponse, _planned)


def _planned(answer: pb.PlanResponse) -> answers.PlanAnswer:
    for name in ("lease", "plan"):
        if not answer.HasField(name):
            raise AnswerError(f"answer.{name} is missing")
    document = {
        "request_id": answer.request_id,
        "lease": _fields(answer.lease),
        "plan": _resume(answer.plan),
        "fallback": _resume(answer.fallback) if answer.HasField("fallback") else None,
        "fingerprint": answer.fingerprint.hex() or None,
        "hit_tokens": answer.hit_tokens,
        "exact_hit_tokens": answer.exact_hit_tokens,
        "reasons": {
            "global": _fields(answer.missing_global) if answer.HasField("missing_global") else None,
            "snapshot": _fields(answer.missing_snapshot) if answer.HasField("missing_snapshot") else None,
        },
    }
    return answers.plan_of(Document(document))


def _resume(resume: pb.Resume) -> dict[str, Any]:
    if not resume.HasField("load"):
        raise AnswerError("a plan without its load")
    load = resume.load
    return _fields(resume) | {
        "load": {
            "global": [load.global_start, load.global_end],
            "snapshot": load.snapshot_boundary if load.HasField("snapshot_boundary") else None,
        },
        "load_bytes": {"ssd": load.ssd_bytes, "dram": load.dram_bytes},
        "tokens_by_source": dict(resume.tokens_by_source),
    }


def _fetch(request: requests.Fetch) -> GrpcRequest:
    message = pb.FetchRequest(lease_id=request.lease_id, shard=request.shard, fallback=request.fallback)
    return GrpcRequest("Fetch", message.SerializeToString(), lambda _: None)


def _store(request: requests.Store) -> GrpcRequest:
    start = pb.StoreStart(
        namespace=request.namespace,
        plan_id=request.plan_id,
        relaxed=not request.durable,
        supersedes=request.supersedes,
    )

    def read(answer: pb.StoreResponse) -> answers.StoreResult:
        """The result, with an outcome for every record that was sent."""
        outcomes = [outcome_document(outcome) for outcome in answer.outcomes]
        if len(outcomes) != len(request.records):
            raise AnswerError(f"{len(outcomes)} outcomes of {len(request.records)} records")
        document = {"outcomes": outcomes, "counts": dict(answer.counts), "plan_known": answer.plan_known}
        return answers.store_result_of(Document(document))

    return _sent("Store", start, pb.StoreResponse, read, may_be_empty=True)


def outcome_document(outcome: pb.Outcome) -> dict[str, Any]:
    """What became of a record, as REST says it."""
    return {
        "key": outcome.key.hex(),
        "shard": outcome.shard,
        "class": outcome.record_class,
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "provenance": outcome.provenance if outcome.HasField("provenance") else None,
        "generation": outcome.generation,
    }


def _keys(request: requests.TouchRecords | requests.DeleteRecords) -> GrpcRequest:
    message = pb.KeysRequest(
        namespace=request.namespace,
        record_class=RecordClass(request.record_class).name.lower(),
        keys=request.keys,
    )
    return _sent(request.verb.title(), message, pb.CountResponse, lambda answer: answer.records, may_be_empty=True)


def _renew(request: requests.Renew) -> GrpcRequest:
    message = pb.RenewRequest(lease_id=request.lease_id)
    return _sent("Renew", message, pb.Lease, lambda lease: answers.lease_of(Document(_fields(lease))))


def _release(request: requests.Release) -> GrpcRequest:
    message = pb.ReleaseRequest(lease_id=request.lease_id, ran=request.ran)
    return _sent("Release", message, pb.ReleaseResponse, lambda answer: dict(answer.tokens_by_source))


def _stats(_: requests.Stats) -> GrpcRequest:
    return _sent("Stats", pb.StatsRequest(), pb.StatsResponse, lambda answer: plain(answer.stats))


def _health(_: requests.CheckHealth) -> GrpcRequest:
    def read(answer: pb.HealthResponse) -> answers.Health:
        return answers.Health(answer.status, list(answer.causes))

    return _sent("Health", pb.HealthRequest(), pb.HealthResponse, read)


_ENCODERS: dict[type, Callable[[Any], GrpcRequest]] = {
    requests.Register: _register,
    requests.HashTokens: _hash_tokens,
    requests.AskPlan: _plan,
    requests.Fetch: _fetch,
    requests.Store: _store,
    requests.TouchRecords: _keys,
    requests.DeleteRecords: _keys,
    requests.Renew: _renew,
    requests.Release: _release,
    requests.Stats: _stats,
    requests.CheckHealth: _health,
}


def _sent(
    verb: str, message: Message, answer: type[Message], read: Callable[[Any], Any], *, may_be_empty: bool = False
) -> GrpcRequest:
    """A request; ``may_be_empty`` where an answer of zeros says something, for that is what an empty message is."""

    def decode(encoded: bytes | None) -> Any:
        """The answer that an encoded message is; raises AnswerError when it is no such message, or an empty one."""
        if encoded is None or (not encoded and not may_be_empty):
            raise AnswerError(f"the answer has no {answer.DESCRIPTOR.name}, or an empty one")
        try:
            decoded = answer.FromString(encoded)
        except DecodeError as error:
            raise AnswerError(f"the answer is no {answer.DESCRIPTOR.name}: {error}") from None
        return read(decoded)

    return GrpcRequest(verb, message.SerializeToString(), decode)


def _fields(message: Message) -> dict[str, Any]:
    """The plain fields of a message by name, those too that have their default."""
    return {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}
