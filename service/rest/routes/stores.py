"""Take a stream of frames in and say what became of each record."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from kvshelf_client.errors import FrameError
from kvshelf_client.frames import KEY_BYTES, MEDIA_TYPE, Frame, FrameAssembler, FrameKind
from kvshelf_client.words import RecordClass
from service.rest import bodies, models
from service.rest.context import Context, InContext
from service.rest.encode import json_response
from service.rest.gate import Writer
from service.rest.problems import ProblemError, problem_responses
from service.shelf.storing import UNKNOWN_PLAN, Outcome, Upload, ran_plan, store

router = APIRouter(prefix="/v1/namespaces", tags=["stores"])

SLACK_BYTES = 64 << 10
"""A payload that is so much too large is still read and refused by itself; beyond that the stream is not worth it."""
BATCH_RECORDS = 64
BATCH_BYTES = 16 << 20
"""A batch is one commit: larger ones sync less often, smaller ones hold less memory."""

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
        largest = max(namespace.shard_block_bytes, namespace.shard_snapshot_bytes)
        assembler = FrameAssembler(largest + SLACK_BYTES)
        outcomes: list[Outcome] = []
        try:
            async for batch in _batches(request, assembler, context.parts.settings.limits.max_store_records):
                outcomes += await _store(context, upload, batch)
        except ProblemError as error:
            error.extra["outcomes"] = [describe_outcome(outcome) for outcome in outcomes]
            raise
        return json_response(_answer(outcomes, plan_known=ran is not None and ran is not UNKNOWN_PLAN))


async def _store(context: Context, upload: Upload, batch: list[Frame]) -> list[Outcome]:
    return await context.run(store, context.parts, upload, [(frame.header, frame.payload) for frame in batch])


async def _batches(request: Request, assembler: FrameAssembler, most: int) -> AsyncIterator[list[Frame]]:
    """Whole batches as they arrive. A malformed stream yields what was whole, then raises a 400."""
    batch: list[Frame] = []
    count = size = 0
    problem: ProblemError | None = None
    try:
        async for chunk in request.stream():
            for frame in assembler.feed(chunk):
                if count == most:
                    raise ProblemError(413, f"a store takes at most {most} records; send the rest in another")
                if frame.header.kind is FrameKind.FALLBACK:
                    raise FrameError("only blocks and snapshots can be stored")
                if frame.header.miss is not None:
                    raise FrameError("a frame that is marked as a miss holds nothing to store")
                count += 1
                batch.append(frame)
                size += len(frame.payload)
                if len(batch) >= BATCH_RECORDS or size >= BATCH_BYTES:
                    yield batch
                    batch, size = [], 0
        if not assembler.at_boundary:
            raise FrameError("the body ends inside a frame")
    except FrameError as error:
        detail = f"after {count} records, whose outcomes are here too: {error}"
        problem = ProblemError(400, detail, field="body")
    except ProblemError as error:
        problem = error
    if batch:
        yield batch
    if problem is not None:
        raise problem


def _answer(outcomes: list[Outcome], *, plan_known: bool) -> dict[str, Any]:
    return {
        "outcomes": [describe_outcome(outcome) for outcome in outcomes],
        "counts": Counter(outcome.outcome for outcome in outcomes),
        "plan_known": plan_known,
    }


def describe_outcome(outcome: Outcome) -> dict[str, Any]:
    """An outcome as the faces show it."""
    return {
        "key": outcome.header.key.hex(),
        "shard": outcome.header.shard,
        "class": RecordClass(outcome.header.kind).name.lower(),
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "provenance": outcome.provenance.name.lower() if outcome.provenance else None,
        "generation": outcome.generation,
    }
