"""The answers as plain documents, with the words and the nesting that all faces share."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from service.leases.lease import Answer, Lease
from service.namespaces import Namespace
from service.planner import plan_document, tokens_by_source
from service.planner.base import Layout, ResumePlan
from service.shelf.planning import Planned
from service.shelf.storing import Outcome

_OUTCOMES_AT_ONCE = 512


def namespace_document(namespace: Namespace) -> dict[str, Any]:
    """A namespace, with what its profile comes to."""
    spec, layout = namespace.spec, namespace.layout
    return {
        "name": namespace.name,
        "fingerprint": namespace.fingerprint.hex(),
        "tenant": spec.tenant,
        "model": spec.model,
        "weights_revision": spec.weights_revision,
        "layout_id": spec.profile.id,
        "layout_digest": spec.profile.digest,
        "block_tokens": spec.block_tokens,
        "hash_scheme": spec.hash_scheme,
        "hash_block_tokens": spec.hash_block_tokens,
        "hashes_per_block": namespace.hashes_per_block,
        "salt": spec.salt,
        "shards": spec.shards,
        "block_bytes": namespace.shard_block_bytes,
        "snapshot_bytes": namespace.shard_snapshot_bytes,
        "window_tokens": layout.window_tokens,
        "state_layers": layout.state_layers,
        "replay": layout.replay.value,
        "decoder_window_tokens": layout.decoder_window_tokens,
    }


def planned_document(planned: Planned) -> dict[str, Any]:
    """A plan, its fallback, its lease, and why whatever is missing is missing."""
    lease, layout = planned.lease, planned.lease.namespace.layout
    glob, snapshot = planned.global_reason, planned.snapshot_reason
    return {
        "request_id": lease.request_id,
        "fingerprint": lease.namespace.fingerprint.hex(),
        "lease": lease_document(lease),
        "plan": resume_document(layout, lease.primary),
        "fallback": resume_document(layout, lease.fallback) if lease.fallback else None,
        "hit_tokens": lease.hit_tokens,
        "exact_hit_tokens": planned.exact_hit_tokens,
        "reasons": {
            "global": {"tokens": glob[0], "reason": glob[1].value} if glob else None,
            "snapshot": {"boundary_tokens": snapshot[0], "reason": snapshot[1].value} if snapshot else None,
        },
    }


def resume_document(layout: Layout, answer: Answer) -> dict[str, Any]:
    """A plan under its id."""
    plan = answer.plan
    return {
        "plan_id": answer.plan_id,
        "prompt_tokens": plan.prompt_tokens,
        "held_tokens": plan.held_tokens,
        "tokens_by_source": sources_document(layout, plan),
        **plan_document(plan),
    }


def sources_document(layout: Layout, plan: ResumePlan) -> dict[str, int]:
    """Where the tokens of a prompt come from."""
    return {source.value: tokens for source, tokens in tokens_by_source(plan, layout).items()}


def lease_document(lease: Lease) -> dict[str, Any]:
    """A lease."""
    load = lease.primary.plan.load
    return {
        "lease_id": lease.lease_id,
        "ttl_seconds": lease.ttl_seconds,
        "records": lease.records,
        "bytes": load.ssd_bytes + load.dram_bytes,
    }


def fallback_json(lease: Lease) -> bytes:
    """The fallback of a lease, as the payload of the frame that stands in for a snapshot that is gone."""
    return msgspec.json.encode(resume_document(lease.namespace.layout, lease.fallback or lease.primary))


def store_document(outcomes: Sequence[Outcome], *, plan_known: bool) -> dict[str, Any]:
    """One outcome a record, in the order sent, and how many there were of each."""
    return {"outcomes": [outcome_document(outcome) for outcome in outcomes], **_store_summary(outcomes, plan_known)}


def store_json(outcomes: Sequence[Outcome], *, plan_known: bool) -> bytes:
    """The same, encoded piece by piece: the outcomes of a long store take ten times as much as documents."""
    pieces = (outcomes[start : start + _OUTCOMES_AT_ONCE] for start in range(0, len(outcomes), _OUTCOMES_AT_ONCE))
    listed = b",".join(msgspec.json.encode([outcome_document(one) for one in piece])[1:-1] for piece in pieces)
    return b'{"outcomes":[' + listed + b"]," + msgspec.json.encode(_store_summary(outcomes, plan_known))[1:]


def _store_summary(outcomes: Sequence[Outcome], plan_known: bool) -> dict[str, Any]:
    return {"counts": Counter(outcome.outcome for outcome in outcomes), "plan_known": plan_known}


def outcome_document(outcome: Outcome) -> dict[str, Any]:
    """What became of one record."""
    return {
        "key": outcome.key.hex(),
        "shard": outcome.shard,
        "class": outcome.record_class.name.lower(),
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "provenance": outcome.provenance.name.lower() if outcome.provenance else None,
        "generation": outcome.generation,
    }
