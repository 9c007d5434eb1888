"""Ask for a resume plan."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from service.faces.answers import planned_document
from service.faces.context import Context
from service.faces.problems import ProblemError
from service.faces.prompts import HASH_BYTES, Prompt, TokenChain, most_prompt_bytes, plan_prompt
from service.faces.questions import PlanQuestion
from service.namespaces import Namespace
from service.rest import bodies, models
from service.rest.context import InContext
from service.rest.gate import Reader
from service.rest.problems import problem_responses
from service.rest.tokens import Extra, pack_tokens

router = APIRouter(prefix="/v1/namespaces", tags=["plans"])

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


class PlanQuery(PlanQuestion):
    """The query parameters of a plan."""

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
        question: PlanQuestion = query
        if kind == bodies.TOKENS_TYPE:
            prompt = Prompt(chain=await _chain(context, request, namespace, query))
        else:
            most = most_prompt_bytes(limits, is_hashed=True)
            most = (limits.max_json_bytes, "limits.max_json_bytes") if kind == bodies.JSON_TYPE else most
            prompt, question = await context.run(_question, kind, await bodies.read_bounded(request, *most), query)
        planned = await context.run(plan_prompt, context.parts, principal, namespace, prompt, question)
        return planned_document(planned)


async def _chain(context: Context, request: Request, namespace: Namespace, query: PlanQuery) -> TokenChain:
    """The keys of the tokens that are the body, made as it arrives."""
    limits = context.parts.settings.limits
    chain = TokenChain(limits, namespace, bodies.hex_bytes(query.extra, None, "query.extra"))
    async for piece in bodies.read_pieces(request, *most_prompt_bytes(limits, is_hashed=False)):
        await context.run(chain.feed, piece)
    return chain


def _question(kind: str, body: bytearray, query: PlanQuery) -> tuple[Prompt, PlanQuestion]:
    """The prompt, however it was sent, and what it is asked with."""
    extra = bodies.hex_bytes(query.extra, None, "query.extra")
    if kind == bodies.HASHES_TYPE:
        return Prompt(hashes=body, extra=extra), query
    sent = bodies.decode_model(body, models.PlanBody)
    if (sent.tokens is None) == (sent.hashes is None):
        raise ProblemError(422, "send either tokens or hashes with prompt_tokens", field="body.tokens")
    stated = query.prompt_tokens if sent.prompt_tokens is None else sent.prompt_tokens
    if query.prompt_tokens not in (None, stated):
        raise ProblemError(
            422, "prompt_tokens is one thing in the query and another in the body", field="prompt_tokens"
        )
    question = query.model_copy(update={"prompt_tokens": stated})
    if sent.tokens is not None:
        return Prompt(tokens=pack_tokens(sent.tokens), extra=extra), question
    hashes = [bodies.hex_bytes(text, HASH_BYTES, "body.hashes") for text in sent.hashes or ()]
    return Prompt(hashes=hashes, extra=extra), question
