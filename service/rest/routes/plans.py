"""Ask for a resume plan."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from service.access import Principal
from service.leases.lease import Answer, Lease
from service.namespaces import Namespace
from service.planner import plan_document, request_for, tokens_by_source
from service.planner.base import Ability, Layout
from service.rest import bodies, models
from service.rest.context import Context, InContext
from service.rest.gate import Reader
from service.rest.problems import ProblemError, problem_responses
from service.rest.tokens import HASH_BYTES, TOKEN_BYTES, Extra, keys_of_hashes, pack_tokens
from service.shelf.planning import Ask, Planned, make_plan

router = APIRouter(prefix="/v1/namespaces", tags=["plans"])

_LENGTH = "query.prompt_tokens"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            bodies.TOKENS_TYPE: _BINARY,
            bodies.HASHES_TYPE: _BINARY,
            bodies.JSON_TYPE: {"schema": models.PlanBody.model_json_schema()},
        },
    }
}


class PlanQuery(BaseModel):
    """The query parameters of a plan. What is left out takes the default of the namespace's profile."""

    request_id: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=128,
            description="The name of the request, unlike that of any other: its tokens are counted once a name.",
        ),
    ] = None
    prompt_tokens: Annotated[int | None, Query(description="The prompt's length; needed with raw hashes.")] = None
    hbm_tokens: Annotated[int, Query(ge=0, description="Tokens the engine already holds.")] = 0
    hbm_exact_tokens: Annotated[int | None, Query(ge=0, description="How many of them are exact.")] = None
    hbm_state: Annotated[bool, Query(description="Whether the engine can itself resume at hbm_tokens.")] = False
    allow_approximate: Annotated[bool | None, Query(description="Whether a plan may be other than exact.")] = None
    supports: Annotated[
        str | None, Query(max_length=128, description="Comma-separated: snapshot, bounded_replay, exact_rebuild.")
    ] = None
    max_load_bytes_per_saved_token: Annotated[
        float | None, Query(ge=0, allow_inf_nan=False, description="Drop plans that cost more to load than this.")
    ] = None
    lease_ttl_seconds: Annotated[
        float | None, Query(ge=0.001, allow_inf_nan=False, description="Life of the lease from its last use.")
    ] = None
    extra: Extra = ""


@router.post(
    "/{name}/plan",
    response_model=models.PlanAnswer,
    responses=problem_responses(404, 413, 415, 422, 503),
    openapi_extra=_BODY,
    summary="Ask for a resume plan",
)
async def plan(
    name: str, request: Request, context: InContext, principal: Reader, query: Annotated[PlanQuery, Query()]
) -> dict[str, Any]:
    """Answer what the engine should load and where it should run, and lease what that needs.

    The body is the prompt: its token ids as raw u32 little-endian, or its block hashes as raw 32-byte strings with
    `prompt_tokens` in the query, or JSON with either.
    """
    with context.parts.metrics.latency.labels("plan").time():
        namespace = context.parts.namespaces.get(principal, name)
        limits = context.parts.settings.limits
        kind = bodies.media_type(request, bodies.TOKENS_TYPE, bodies.HASHES_TYPE, bodies.JSON_TYPE)
        most = limits.max_json_bytes if kind == bodies.JSON_TYPE else _most_bytes(kind, limits.max_prompt_tokens)
        body = await bodies.read_bounded(request, most)
        planned = await context.run(_plan, context, principal, namespace, kind, body, query)
        return _answer(namespace.layout, planned)


def _most_bytes(kind: str, max_prompt_tokens: int) -> int:
    return max_prompt_tokens * (TOKEN_BYTES if kind == bodies.TOKENS_TYPE else HASH_BYTES)


def _plan(
    context: Context, principal: Principal, namespace: Namespace, kind: str, body: bytearray, query: PlanQuery
) -> Planned:
    prompt_tokens, keys = _prompt(context, namespace, kind, body, query)
    request = request_for(
        namespace.layout,
        prompt_tokens,
        allow_approximate=query.allow_approximate,
        supports=_abilities(query.supports),
        hbm_tokens=query.hbm_tokens,
        hbm_exact_tokens=query.hbm_exact_tokens,
        hbm_state=query.hbm_state,
        max_load_bytes_per_saved_token=query.max_load_bytes_per_saved_token,
    )
    request_id = query.request_id or context.parts.new_id()
    ask = Ask(namespace, request, keys, request_id, _lease_ttl(context, query), principal.tenant)
    return make_plan(context.parts, ask)


def _prompt(
    context: Context, namespace: Namespace, kind: str, body: bytearray, query: PlanQuery
) -> tuple[int, list[bytes]]:
    """The prompt's length and block keys, however it was sent."""
    most = context.parts.settings.limits.max_prompt_tokens
    if kind == bodies.TOKENS_TYPE:
        return _from_tokens(namespace, body, query.prompt_tokens, query, most)
    if kind == bodies.HASHES_TYPE:
        return _from_hashes(namespace, body, query.prompt_tokens, query, most)
    sent = bodies.decode_model(body, models.PlanBody)
    if (sent.tokens is None) == (sent.hashes is None):
        raise ProblemError(422, "send either tokens or hashes with prompt_tokens", field="body.tokens")
    stated = query.prompt_tokens if sent.prompt_tokens is None else sent.prompt_tokens
    if query.prompt_tokens not in (None, stated):
        raise ProblemError(422, "prompt_tokens is one thing in the query and another in the body", field=_LENGTH)
    if sent.tokens is not None:
        return _from_tokens(namespace, pack_tokens(sent.tokens), stated, query, most)
    hashes = [bodies.hex_bytes(text, HASH_BYTES, "body.hashes") for text in sent.hashes or ()]
    return _from_hashes(namespace, hashes, stated, query, most)


def _from_tokens(
    namespace: Namespace, body: bytearray, stated: int | None, query: PlanQuery, most: int
) -> tuple[int, list[bytes]]:
    if len(body) % TOKEN_BYTES:
        raise ProblemError(422, f"tokens have {TOKEN_BYTES} bytes each, got {len(body)} bytes", field="body")
    length = _checked_length(len(body) // TOKEN_BYTES, most)
    if stated not in (None, length):
        raise ProblemError(422, f"prompt_tokens is {stated}, but {length} tokens came", field=_LENGTH)
    return length, namespace.keys_from_tokens(body, bodies.hex_bytes(query.extra, None, "query.extra"))


def _from_hashes(
    namespace: Namespace, hashes: Sequence[bytes] | bytearray, stated: int | None, query: PlanQuery, most: int
) -> tuple[int, list[bytes]]:
    if query.extra:
        raise ProblemError(422, "extra goes into hashes that are made here; these came made", field="query.extra")
    if stated is None:
        raise ProblemError(422, "prompt_tokens is needed with hashes", field=_LENGTH)
    length = _checked_length(stated, most)
    return length, keys_of_hashes(namespace, hashes, length)


def _checked_length(length: int, most: int) -> int:
    if not 1 <= length <= most:
        raise ProblemError(422, f"prompt_tokens must be from 1 to {most}, got {length}", field=_LENGTH)
    return length


def _abilities(text: str | None) -> frozenset[Ability] | None:
    if text is None:
        return None
    try:
        return frozenset(Ability(word.strip()) for word in text.split(",") if word.strip())
    except ValueError as error:
        known = ", ".join(Ability)
        raise ProblemError(422, f"supports takes words of {known}: {error}", field="query.supports") from None


def _lease_ttl(context: Context, query: PlanQuery) -> float:
    lease = context.parts.settings.lease
    if query.lease_ttl_seconds is None:
        return lease.ttl_seconds
    if query.lease_ttl_seconds > lease.max_ttl_seconds:
        detail = f"lease_ttl_seconds may be at most {lease.max_ttl_seconds:g}"
        raise ProblemError(422, detail, field="query.lease_ttl_seconds")
    return query.lease_ttl_seconds


def describe_answer(layout: Layout, answer: Answer) -> dict[str, Any]:
    """A plan under its id, as the faces show it."""
    plan = answer.plan
    sources = {source.value: tokens for source, tokens in tokens_by_source(plan, layout).items()}
    return {
        "plan_id": answer.plan_id,
        "prompt_tokens": plan.prompt_tokens,
        "held_tokens": plan.held_tokens,
        "tokens_by_source": sources,
        **plan_document(plan),
    }


def describe_lease(lease: Lease) -> dict[str, Any]:
    """A lease as the faces show it."""
    load = lease.primary.plan.load
    return {
        "lease_id": lease.lease_id,
        "ttl_seconds": lease.ttl_seconds,
        "records": lease.records,
        "bytes": load.ssd_bytes + load.dram_bytes,
    }


def _answer(layout: Layout, planned: Planned) -> dict[str, Any]:
    lease = planned.lease
    glob, snapshot = planned.global_reason, planned.snapshot_reason
    return {
        "request_id": lease.request_id,
        "lease": describe_lease(lease),
        "plan": describe_answer(layout, lease.primary),
        "fallback": describe_answer(layout, lease.fallback) if lease.fallback else None,
        "hit_tokens": lease.hit_tokens,
        "exact_hit_tokens": planned.exact_hit_tokens,
        "reasons": {
            "global": {"tokens": glob[0], "reason": glob[1].value} if glob else None,
            "snapshot": {"boundary_tokens": snapshot[0], "reason": snapshot[1].value} if snapshot else None,
        },
    }
