"""Scrub the SSD tier on demand, and see how far that is."""

from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from service.faces.problems import ProblemError
from service.rest.context import InContext
from service.rest.encode import json_response
from service.rest.gate import OperatorAdmin, Overseer
from service.rest.problems import problem_responses

router = APIRouter(prefix="/v1/scrub", tags=["operate"])


class ScrubAnswer(BaseModel):
    """The pass under way, or the last one. Times are seconds since the epoch."""

    state: Literal["running", "idle", "off"]
    progress: float = Field(description="0 to 1.")
    started_at: float | None
    completed_at: float | None = Field(description="The end of the last whole pass; before one, of the first start.")
    records: int
    payload_bytes: int
    corrupt: int = Field(description="Records found damaged; they are misses from then on.")
    live_bytes: int = Field(description="What was stored when it began.")


@router.get("", response_model=ScrubAnswer, summary="Scrubbing")
async def show(context: InContext, _: Overseer) -> Response:
    """How far scrubbing is."""
    return json_response(context.parts.scrubber.document())


@router.post("", status_code=202, response_model=ScrubAnswer, responses=problem_responses(409), summary="Scrub now")
async def scrub(context: InContext, _: OperatorAdmin) -> Response:
    """Begin a pass now, unless one is under way."""
    scrubber = context.parts.scrubber
    if not scrubber.is_on:
        raise ProblemError(409, "scrubbing is off: scrub.bytes_per_second is 0")
    scrubber.ask()
    return json_response(scrubber.document(), 202)
