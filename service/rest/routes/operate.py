"""For those who run the service: health, readiness, metrics, statistics."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from prometheus_client import CONTENT_TYPE_LATEST

from service.faces.problems import ProblemError
from service.overview.document import overview
from service.rest import models
from service.rest.context import InContext
from service.rest.encode import json_response
from service.rest.gate import Overseer, Reader
from service.rest.problems import problem_responses
from service.shelf.condition import health, refresh_gauges, statistics

router = APIRouter(tags=["operate"])


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", response_model=models.HealthAnswer, summary="Health with causes")
async def healthz(context: InContext) -> dict[str, Any]:
    """`ok`, or `degraded` with the causes: the service answers, but serves less than it could."""
    state = health(context.parts)
    return {"status": state.status, "causes": list(state.causes)}


@router.head("/readyz", status_code=204, include_in_schema=False)
@router.get("/readyz", status_code=204, responses=problem_responses(503), summary="Readiness")
async def readyz(context: InContext) -> Response:
    """204 while requests are taken, 503 from the moment a stop was asked for."""
    if context.is_draining:
        raise ProblemError(503, "the service is stopping")
    return Response(status_code=204)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus text."}},
    summary="Prometheus metrics",
)
async def metrics(context: InContext, _: Overseer) -> Response:
    """All metrics in the Prometheus text format."""
    parts = context.parts
    text = await context.run(parts.metrics.render, lambda: refresh_gauges(parts))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/overview", response_model=dict[str, Any], summary="What the page shows")
async def show_overview(
    context: InContext,
    _: Overseer,
    after: Annotated[int, Query(ge=0, le=1 << 53, description="The number of the last sample you have.")] = 0,
) -> Response:
    """Samples of the last hour as columns, a sample of now, and an operator's questions answered in words."""
    return json_response(await context.run(overview, context.parts, context.history, after))


@router.get("/v1/stats", response_model=dict[str, Any], summary="Statistics")
async def stats(context: InContext, principal: Reader) -> Response:
    """Usage of each tier, leases, health, retention reached; of what is its own alone, for a tenant."""
    with context.parts.metrics.latency.labels("stats").time():
        return json_response(await context.run(statistics, context.parts, principal))
