"""Register namespaces, look at them, and prove that an engine hashes alike."""

from typing import Any

from fastapi import APIRouter, Request, Response

from service.faces.answers import namespace_document
from service.faces.namespaces import register_namespace
from service.faces.problems import ProblemError
from service.faces.questions import NamespaceQuestion
from service.rest import bodies, models
from service.rest.context import InContext
from service.rest.gate import Reader, Writer
from service.rest.problems import problem_responses
from service.rest.tokens import Extra, pack_tokens

router = APIRouter(prefix="/v1/namespaces", tags=["namespaces"])


@router.put(
    "/{name}",
    response_model=models.NamespaceAnswer,
    responses={
        200: {"description": "It was registered alike before."},
        201: {"model": models.NamespaceAnswer, "description": "Newly registered."},
        **problem_responses(409, 413, 415, 422, 503, 507),
    },
    openapi_extra=bodies.json_body(NamespaceQuestion),
    summary="Register a namespace",
)
async def register(
    name: str, request: Request, response: Response, context: InContext, principal: Writer
) -> dict[str, Any]:
    """Register a namespace, or find it registered alike.

    Something else under the same name is a conflict; the problem document's `differences` says in what.
    """
    with context.parts.metrics.latency.labels("register").time():
        body = await bodies.read_model(request, NamespaceQuestion, context.parts.settings.limits.max_json_bytes)
        namespace, created = await context.run(register_namespace, context.parts, principal, name, body)
        response.status_code = 201 if created else 200
        return namespace_document(namespace)


@router.get("", response_model=models.NamespaceList, summary="List the namespaces")
async def list_all(context: InContext, principal: Reader) -> dict[str, Any]:
    """All namespaces that the caller may read, by name."""
    return {"namespaces": list(map(namespace_document, context.parts.namespaces.list_readable(principal)))}


@router.get(
    "/{name}", response_model=models.NamespaceAnswer, responses=problem_responses(404), summary="Look at a namespace"
)
async def show(name: str, context: InContext, principal: Reader) -> dict[str, Any]:
    """One namespace."""
    return namespace_document(context.parts.namespaces.get(principal, name))


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
