"""The answers as messages, made of the documents that all faces share."""

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message

from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from service.faces import answers
from service.leases.lease import Lease
from service.namespaces import Namespace
from service.shelf.planning import Planned


def present(message: Message, *, without: tuple[str, ...]) -> dict[str, Any]:
    """The plain fields of a message that were set, by name; those of ``without`` are somebody else's."""
    return {field.name: value for field, value in message.ListFields() if field.name not in without}


def namespace(found: Namespace, *, created: bool = False) -> pb.Namespace:
    """A namespace, with what its profile comes to."""
    document = answers.namespace_document(found)
    document["fingerprint"] = found.fingerprint
    return pb.Namespace(**document, created=created)


def plan(planned: Planned) -> pb.PlanResponse:
    """A plan, its fallback, its lease, and why whatever is missing is missing."""
    document = answers.planned_document(planned)
    reasons, fallback = document.pop("reasons"), document.pop("fallback")
    missing_global, missing_snapshot = reasons["global"], reasons["snapshot"]
    return pb.PlanResponse(
        request_id=document["request_id"],
        fingerprint=planned.lease.namespace.fingerprint,
        lease=pb.Lease(**document["lease"]),
        plan=_resume(document["plan"]),
        fallback=_resume(fallback) if fallback else None,
        hit_tokens=document["hit_tokens"],
        exact_hit_tokens=document["exact_hit_tokens"],
        missing_global=pb.MissingGlobal(**missing_global) if missing_global else None,
        missing_snapshot=pb.MissingSnapshot(**missing_snapshot) if missing_snapshot else None,
    )


def _resume(document: dict[str, Any]) -> pb.Resume:
    load, load_bytes = document.pop("load"), document.pop("load_bytes")
    return pb.Resume(
        **document,
        load=pb.Load(
            global_start=load["global"][0],
            global_end=load["global"][1],
            snapshot_boundary=load["snapshot"],
            ssd_bytes=load_bytes["ssd"],
            dram_bytes=load_bytes["dram"],
        ),
    )


def lease(found: Lease) -> pb.Lease:
    """A lease."""
    return pb.Lease(**answers.lease_document(found))


def outcome(document: Mapping[str, Any]) -> pb.Outcome:
    """What became of one record."""
    return pb.Outcome(
        key=bytes.fromhex(document["key"]),
        shard=document["shard"],
        record_class=document["class"],
        outcome=document["outcome"],
        reason=document["reason"],
        provenance=document["provenance"],
        generation=document["generation"],
    )


def store(document: Mapping[str, Any]) -> pb.StoreResponse:
    """What became of the records of a store."""
    return pb.StoreResponse(
        outcomes=map(outcome, document["outcomes"]), counts=document["counts"], plan_known=document["plan_known"]
    )
