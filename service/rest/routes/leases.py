"""Use a lease: fetch what it holds, keep it alive, release it."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from kvshelf_client.frames import MEDIA_TYPE
from service.faces.answers import fallback_json, lease_document, sources_document
from service.leases.lease import RanPlan
from service.rest import models
from service.rest.context import InContext, context_of
from service.rest.gate import Reader, reader
from service.rest.plain import PlainRoute
from service.rest.problems import problem_responses
from service.rest.sending import BulkResponse
from service.shelf.early import OnHead
from service.shelf.fetching import Fetch, open_fetch
from service.shelf.finishing import finish

router = APIRouter(prefix="/v1/leases", tags=["leases"])

_FRAMES = {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}


@router.get(
    "/{lease_id}/fetch",
    response_class=Response,
    responses={200: {"content": _FRAMES, "description": "Frames."}, **problem_responses(404, 422)},
    summary="Fetch what a plan loads",
)
async def fetch(
    lease_id: str,
    context: InContext,
    principal: Reader,
    shard: Annotated[int | None, Query(ge=0, description="One shard only; all in order without it.")] = None,
    fallback: Annotated[bool, Query(description="Send the fallback: the snapshot came, and was found bad.")] = False,
) -> BulkResponse:
    """Stream the leased records as frames: the snapshot first, then the blocks in order.

    When the snapshot is gone, or was found bad by the client, the first frame is the fallback plan, the header
    `Kvshelf-Fallback: true` is set, and the fallback's blocks follow. A record that turned bad is a frame marked
    as a miss.
    """
    parts = context.parts
    started = parts.clock.monotonic()

    def opened(on_head: OnHead | None) -> Fetch:
        return open_fetch(parts, principal.tenant, lease_id, shard, fallback_json, fall_back=fallback, on_head=on_head)

    def sent() -> None:
        parts.metrics.latency.labels("fetch").observe(parts.clock.monotonic() - started)

    return BulkResponse(context, opened, MEDIA_TYPE, sent)


async def _fetch_plainly(request: Request) -> BulkResponse:
    """As :func:`fetch`, without a query."""
    return await fetch(request.path_params["lease_id"], await context_of(request), await reader(request))


PLAIN_FETCH = PlainRoute("/v1/leases/{lease_id}/fetch", _fetch_plainly)


@router.post(
    "/{lease_id}/touch", response_model=models.LeaseAnswer, responses=problem_responses(404), summary="Renew a lease"
)
async def renew(lease_id: str, context: InContext, principal: Reader) -> dict[str, Any]:
    """Give a lease its whole life again."""
    parts = context.parts
    with parts.metrics.latency.labels("touch").time(), parts.leases.use(principal.tenant, lease_id) as lease:
        return lease_document(lease)


@router.delete(
    "/{lease_id}",
    response_model=models.ReleaseAnswer,
    responses=problem_responses(404, 422),
    summary="Release a lease",
)
async def release(
    lease_id: str,
    context: InContext,
    principal: Reader,
    ran: Annotated[
        RanPlan, Query(description="What the request ran; `plan` is the fallback once a fetch fell back.")
    ] = (RanPlan.PLAN),
) -> dict[str, Any]:
    """End a request: its tokens are counted by source, once a request id, and the life of what it used is renewed."""
    with context.parts.metrics.latency.labels("release").time():
        layout, plan = await context.run(finish, context.parts, principal.tenant, lease_id, ran)
        return {"tokens_by_source": sources_document(layout, plan)}
