"""Erase records by what they belong to: jobs, their progress, their receipts. Takes the scope ``admin``."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.access import Principal
from service.erasure.job import ErasureJob, Target
from service.erasure.scope import ErasureScope
from service.faces.problems import ProblemError
from service.rest import bodies
from service.rest.context import InContext
from service.rest.encode import json_response
from service.rest.gate import Admin
from service.rest.problems import problem_responses
from service.shelf.parts import Parts

router = APIRouter(prefix="/v1/erasures", tags=["erasures"])

InId = Annotated[str, Path(min_length=1, max_length=64, description="The job.")]


class ErasureBody(BaseModel):
    """What to erase: all conditions given must hold, and at least one must be given. And how."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tenant: str | None = Field(None, max_length=64, description="Namespaces of this tenant.")
    namespace: str | None = Field(None, max_length=128, description="The namespace of this name.")
    model: str | None = Field(None, max_length=256, description="Namespaces of this model.")
    weights_revision: str | None = Field(None, max_length=256, description="Namespaces of this revision.")
    record_class: Literal["block", "snapshot"] | None = Field(None, description="Records of this class alone.")
    keys: list[str] = Field([], description="Records of these block keys, all shards; takes `namespace`.")
    key_prefix: str = Field("", max_length=48, description="Records whose block keys start with these digits.")
    stored_from: float | None = Field(None, allow_inf_nan=False, description="Records stored then or later.")
    stored_before: float | None = Field(None, allow_inf_nan=False, description="Records stored before then.")
    dry_run: bool = Field(False, description="Count what would be erased, and erase nothing.")
    forget_namespaces: bool = Field(False, description="Remove the namespaces, too; only where all of them is erased.")
    wipe: bool = Field(True, description="Write over what is left of earlier copies, everywhere on the disk.")


class ErasureAnswer(BaseModel):
    """A job; once it is `done`, its receipt. Times are seconds since the epoch."""

    erasure_id: str
    state: Literal["queued", "running", "waiting", "done"]
    step: str = Field(description="What is being done.")
    trouble: str = Field(description="Why it waits.")
    asked: dict[str, Any]
    namespaces: list[dict[str, str]]
    records: dict[str, int] = Field(description="Records erased so far (of a dry run: found), by class.")
    payload_bytes: dict[str, int] = Field(description="Their bytes as stored.")
    wiped_bytes: int = Field(description="Bytes of dead space that were written over beyond those.")
    unwiped_segments: int = Field(description="Segments that leases held all the time; earlier copies may be there.")
    leases_ended: int
    created_at: float
    started_at: float | None
    finished_at: float | None
    not_guaranteed: list[str] = Field(description="What erasing does not reach.")


class ErasureList(BaseModel):
    """Jobs, newest first."""

    erasures: list[ErasureAnswer]


@router.post(
    "",
    status_code=202,
    response_model=ErasureAnswer,
    responses=problem_responses(404, 413, 415, 422, 503, 507),
    openapi_extra=bodies.json_body(ErasureBody),
    summary="Erase records",
)
async def erase(request: Request, context: InContext, principal: Admin) -> Response:
    """Take a job. It is durable when this is answered, and goes on over restarts until it is done.

    What is erased is a miss at once when its turn comes, for leases that hold it, too. Leases of namespaces that are
    erased as a whole end.
    """
    with context.parts.metrics.latency.labels("erase").time():
        limits = context.parts.settings.limits
        body = await bodies.read_model(request, ErasureBody, limits.max_json_bytes)
        if len(body.keys) > limits.max_list_items:
            raise ProblemError(413, f"at most {limits.max_list_items} keys at a time", field="body.keys")
        job = await context.run(_add, context.parts, principal, body)
        response = json_response(job.document(), 202)
        response.headers["Location"] = f"/v1/erasures/{job.job_id}"
        return response


def _add(parts: Parts, principal: Principal, body: ErasureBody) -> ErasureJob:
    how = {"dry_run", "forget_namespaces", "wipe", "keys"}
    scope = ErasureScope(**body.model_dump(exclude=how), keys=tuple(body.keys))
    if body.forget_namespaces and not scope.is_whole:
        raise ProblemError(422, "namespaces are forgotten when all of them is erased", field="body.forget_namespaces")
    job = ErasureJob(
        job_id=parts.new_id(),
        owner=principal.tenant,
        scope=scope,
        targets=[Target.of(namespace) for namespace in scope.targets(parts.namespaces, principal)],
        created_at=parts.clock.now(),
        is_dry_run=body.dry_run,
        forgets=body.forget_namespaces,
        wipes=body.wipe,
    )
    parts.erasures.add(job)
    return job


@router.get("", response_model=ErasureList, summary="List the erasures")
async def list_all(context: InContext, principal: Admin) -> Response:
    """The caller's jobs, newest first."""
    return json_response({"erasures": [job.document() for job in context.parts.erasures.list(principal)]})


@router.get("/{erasure_id}", response_model=ErasureAnswer, responses=problem_responses(404), summary="Look at one")
async def show(erasure_id: InId, context: InContext, principal: Admin) -> Response:
    """How far a job is; once it is done, its receipt."""
    return json_response(context.parts.erasures.get(principal, erasure_id).document())
