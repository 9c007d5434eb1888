"""Register namespaces, look at them, and prove that an engine hashes alike."""

from typing import Any

from fastapi import APIRouter, Request, Response

from service.access import Principal
from service.namespaces import Namespace, NamespaceSpec
from service.profiles import Profile, get_profile, profile_from_document
from service.rest import bodies, models
from service.rest.context import Context, InContext
from service.rest.gate import Reader, Writer
from service.rest.problems import ProblemError, problem_responses
from service.rest.tokens import Extra, pack_tokens

DEFAULT_TENANT = "default"
"""Whose a namespace is where nobody says it."""

router = APIRouter(prefix="/v1/namespaces", tags=["namespaces"])


@router.put(
    "/{name}",
    response_model=models.NamespaceAnswer,
    responses={
        200: {"description": "It was registered alike before."},
        201: {"model": models.NamespaceAnswer, "description": "Newly registered."},
        **problem_responses(409, 413, 415, 422, 507),
    },
    openapi_extra=bodies.json_body(models.RegisterBody),
    summary="Register a namespace",
)
async def register(
    name: str, request: Request, response: Response, context: InContext, principal: Writer
) -> dict[str, Any]:
    """Register a namespace, or find it registered alike.

    Something else under the same name is a conflict; the problem document's `differences` says in what.
    """
    with context.parts.metrics.latency.labels("register").time():
        body = await bodies.read_model(request, models.RegisterBody, context.parts.settings.limits.max_json_bytes)
        namespace, created = await context.run(_register, context, principal, name, body)
        response.status_code = 201 if created else 200
        return describe(namespace)


def _register(context: Context, principal: Principal, name: str, body: models.RegisterBody) -> tuple[Namespace, bool]:
    profile = _profile(body)
    spec = NamespaceSpec(
        tenant=body.tenant or principal.tenant or DEFAULT_TENANT,
        model=body.model,
        weights_revision=body.weights_revision,
        profile=profile,
        block_tokens=body.block_tokens,
        hash_scheme=body.hash_scheme,
        hash_block_tokens=body.hash_block_tokens,
        salt=body.salt,
        shards=body.shards,
    )
    return context.parts.namespaces.register(principal, name, spec)


def _profile(body: models.RegisterBody) -> Profile:
    profile = get_profile(body.profile) if isinstance(body.profile, str) else profile_from_document(body.profile)
    return profile.miniature(body.bytes_per_token) if body.bytes_per_token is not None else profile


@router.get("", response_model=models.NamespaceList, summary="List the namespaces")
async def list_all(context: InContext, principal: Reader) -> dict[str, Any]:
    """All namespaces that the caller may read, by name."""
    return {"namespaces": [describe(namespace) for namespace in context.parts.namespaces.list(principal)]}


@router.get(
    "/{name}", response_model=models.NamespaceAnswer, responses=problem_responses(404), summary="Look at a namespace"
)
async def show(name: str, context: InContext, principal: Reader) -> dict[str, Any]:
    """One namespace."""
    return describe(context.parts.namespaces.get(principal, name))


@router.post(
    "/{name}/hash",
    response_model=models.HashAnswer,
    responses=problem_responses(404, 413, 415, 422),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                bodies.TOKENS_TYPE: {"schema": {"type": "string", "format": "binary"}},
                bodies.JSON_TYPE: {"schema": models.TokensBody.model_json_schema()},
            },
        }
    },
    summary="Hash a token list",
)
async def hash_tokens(
    name: str,
    request: Request,
    context: InContext,
    principal: Reader,
    extra: Extra = "",
) -> dict[str, Any]:
    """The keys of the full blocks of a token list, so that an engine can prove that it hashes alike.

    The body is the token ids as raw u32 little-endian, or JSON.
    """
    with context.parts.metrics.latency.labels("hash").time():
        namespace = context.parts.namespaces.get(principal, name)
        limits = context.parts.settings.limits
        kind = bodies.media_type(request, bodies.TOKENS_TYPE, bodies.JSON_TYPE)
        body = await bodies.read_bounded(request, 16 * limits.max_list_items)
        if kind == bodies.JSON_TYPE:
            body = pack_tokens(bodies.decode_model(body, models.TokensBody).tokens)
        if len(body) > 4 * limits.max_list_items:
            raise ProblemError(413, f"the self-test takes at most {limits.max_list_items} tokens", field="body")
        keys = await context.run(namespace.keys_from_tokens, body, bodies.hex_bytes(extra, None, "query.extra"))
        return {
            "fingerprint": namespace.fingerprint.hex(),
            "block_tokens": namespace.layout.block_tokens,
            "keys": [key.hex() for key in keys],
        }


def describe(namespace: Namespace) -> dict[str, Any]:
    """A namespace as the faces show it."""
    spec, layout = namespace.spec, namespace.layout
    return {
        "name": namespace.name,
        "fingerprint": namespace.fingerprint.hex(),
        "tenant": spec.tenant,
        "model": spec.model,
        "weights_revision": spec.weights_revision,
        "layout_id": spec.profile.id,
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
