"""Take a stream of frames in and say what became of each record."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from kvshelf_client.frames import KEY_BYTES, MEDIA_TYPE
from service.faces.answers import store_json
from service.faces.uploads import store_stream
from service.rest import bodies, models
from service.rest.context import InContext
from service.rest.encode import encoded_response
from service.rest.gate import Writer
from service.rest.problems import problem_responses
from service.rest.receiving import body_of
from service.shelf.storing import UNKNOWN_PLAN, Upload, ran_plan

router = APIRouter(prefix="/v1/namespaces", tags=["stores"])

_BODY = {"requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}}


class StoreQuery(BaseModel):
    """The query parameters of a store."""

    plan_id: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=64,
            description="The plan that ran. Without it records are `replayed` where replay is bounded.",
        ),
    ] = None
    durability: Annotated[
        Literal["durable", "relaxed"], Query(description="Whether the answer waits until the disk has the records.")
    ] = "durable"
    supersedes: Annotated[
        str | None, Query(description="Key of the session's previous snapshot; it goes when the new one is first used.")
    ] = None


@router.post(
    "/{name}/store",
    response_model=models.StoreAnswer,
    responses=problem_responses(400, 404, 413, 415, 422),
    openapi_extra=_BODY,
    summary="Store records",
)
async def store_records(
    name: str, request: Request, context: InContext, principal: Writer, query: Annotated[StoreQuery, Query()]
) -> Response:
    """Store a stream of frames, one outcome a record. A refused record costs the others nothing.

    When the stream turns out to be malformed, the answer is a 400, and what was whole before that point is kept.
    """
    with context.parts.metrics.latency.labels("store").time():
        namespace = context.parts.namespaces.get_writable(principal, name)
        bodies.media_type(request, MEDIA_TYPE)
        supersedes = bodies.hex_bytes(query.supersedes, KEY_BYTES, "query.supersedes") if query.supersedes else None
        ran = ran_plan(context.parts, principal.tenant, namespace, query.plan_id)
        upload = Upload(namespace, ran, query.durability == "durable", supersedes)
        async with body_of(context, request) as body:
            outcomes = await store_stream(context, request.state.admitted, upload, body)
        plan_known = ran is not None and ran is not UNKNOWN_PLAN
        return encoded_response(await context.run(store_json, outcomes, plan_known=plan_known))
