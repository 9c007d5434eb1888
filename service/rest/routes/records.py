"""Single records by key: look, read, write once, delete; and renew or delete many."""

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from kvshelf_client.frames import KEY_BYTES, FrameHeader, FrameKind, checksum_of
from kvshelf_client.words import Provenance, RecordClass
from service.faces.answers import outcome_document
from service.faces.context import Context
from service.faces.problems import ProblemError
from service.rest import bodies, models
from service.rest.context import InContext
from service.rest.encode import json_response
from service.rest.gate import Reader, Writer
from service.rest.problems import problem_responses
from service.shelf import records
from service.shelf.parts import Parts
from service.shelf.storing import Outcome, Upload, ran_plan, store
from storage.base import UNKNOWN_CHECKSUM, Entry, Loaded, Miss

router = APIRouter(prefix="/v1/namespaces", tags=["records"])

ClassName = Literal["block", "snapshot"]
InKey = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="The block key: 64 lower-case hexadecimal digits.")]
InShard = Annotated[int, Query(ge=0, le=65_535, description="The shard.")]

PIECE_BYTES = 1 << 20
"""A longer payload is sent in pieces: as one it would be copied whole on the event loop."""
MISS_HEADER = "Kvshelf-Miss"
_BINARY = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


_REFUSALS = {
    "wrong_class": ("path.kind", "the namespace's profile has no such records"),
    "wrong_size": ("body", "the namespace says how many bytes a record of this class has"),
    "wrong_shard": ("query.shard", "the namespace has fewer shards"),
    "no_boundary": ("query.end_tokens", "a record ends at a multiple of block_tokens"),
    "below_write_floor": ("query.end_tokens", "the plan's run neither computed nor held it"),
    "corrupt": ("body", "the payload is not its checksum's"),
}
"""Where the fault of a refused record lies, and what it is."""


@router.get(
    "/{name}/records/{kind}/{key}",
    response_class=Response,
    responses={
        200: {**_BINARY, "description": "The payload."},
        206: {**_BINARY, "description": "The range of it that was asked for."},
        304: {"description": "The caller has it already (If-None-Match)."},
        **problem_responses(404, 416, 422, 503),
    },
    summary="Read a record",
)
async def read_record(
    name: str,
    kind: ClassName,
    key: InKey,
    request: Request,
    context: InContext,
    principal: Reader,
    shard: InShard = 0,
) -> Response:
    """The payload of a record, verified, with a strong `ETag` (key, shard and generation) and one `Range` at most.

    A miss is a 404 whose header `Kvshelf-Miss` has the reason; of a tier that does not serve nothing is known: a 503.
    """
    with context.parts.metrics.latency.labels("record").time():
        namespace = context.parts.namespaces.get(principal, name)
        found = await context.run(records.read, context.parts, namespace, _class(kind), bytes.fromhex(key), shard)
        if isinstance(found, Miss):
            raise _missing(found)
        headers = _headers(key, found.entry)
        if _has_it(request, headers["ETag"]):
            return Response(status_code=304, headers=headers)
        return _payload_response(request, found, headers)


@router.head(
    "/{name}/records/{kind}/{key}",
    response_class=Response,
    responses={
        200: {"description": "It is there."},
        304: {"description": "The caller has it already (If-None-Match)."},
        **problem_responses(404, 422, 503),
    },
    summary="Look at a record",
)
async def look_at_record(
    name: str,
    kind: ClassName,
    key: InKey,
    request: Request,
    context: InContext,
    principal: Reader,
    shard: InShard = 0,
) -> Response:
    """The headers that a read would answer with. It reads no payload and renews nothing."""
    with context.parts.metrics.latency.labels("record").time():
        namespace = context.parts.namespaces.get(principal, name)
        found = await context.run(records.look, context.parts, namespace, _class(kind), bytes.fromhex(key), shard)
        if isinstance(found, Miss):
            raise _missing(found)
        headers = _headers(key, found)
        if _has_it(request, headers["ETag"]):
            return Response(status_code=304, headers=headers)
        headers["Content-Length"] = str(found.length_bytes)
        return Response(headers=headers, media_type=bodies.TOKENS_TYPE)


def _missing(miss: Miss) -> ProblemError:
    reason = miss.reason.value
    return ProblemError(404, f"not there: {reason}", headers={MISS_HEADER: reason}, extra={"reason": reason})


def _payload_response(request: Request, found: Loaded, headers: dict[str, str]) -> Response:
    size = found.entry.length_bytes
    asked = _RANGE.fullmatch(request.headers.get("range", "").strip())
    # What is no single range of bytes is ignored, as RFC 9110 has it.
    if asked is None or _is_invalid(asked) or request.headers.get("if-range", headers["ETag"]) != headers["ETag"]:
        return _octets(memoryview(found.payload), 200, headers)
    chosen = _range(asked, size)
    if chosen is None:
        everything = {"Content-Range": f"bytes */{size}"}
        raise ProblemError(416, f"the record has {size} bytes", field="header.range", headers=everything)
    headers["Content-Range"] = f"bytes {chosen.start}-{chosen.stop - 1}/{size}"
    return _octets(memoryview(found.payload)[chosen.start : chosen.stop], 206, headers)


def _octets(payload: memoryview, status: int, headers: dict[str, str]) -> Response:
    if len(payload) <= PIECE_BYTES:
        return Response(bytes(payload), status, headers, bodies.TOKENS_TYPE)
    headers["Content-Length"] = str(len(payload))
    return StreamingResponse(_pieces(payload), status, headers, bodies.TOKENS_TYPE)


async def _pieces(payload: memoryview) -> AsyncIterator[memoryview]:
    for start in range(0, len(payload), PIECE_BYTES):
        yield payload[start : start + PIECE_BYTES]


def _is_invalid(asked: re.Match[str]) -> bool:
    first, last = asked.groups()
    return not (first or last) or bool(first and last and int(first) > int(last))


def _range(asked: re.Match[str], size: int) -> range | None:
    """The bytes that a valid Range header asks for; None when the record has none of them."""
    first, last = asked.groups()
    if not first:
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(size, int(last) + 1) if last else size
    return range(start, stop) if start < stop else None


@router.put(
    "/{name}/records/{kind}/{key}",
    response_model=models.OutcomeAnswer,
    responses={
        200: {"description": "A duplicate: nothing was written."},
        201: {"model": models.OutcomeAnswer, "description": "Stored, or took the place of a replayed one."},
        **problem_responses(404, 412, 413, 415, 422, 503, 507),
    },
    openapi_extra={"requestBody": {"required": True, **_BINARY}},
    summary="Write a record once",
)
async def write_record(
    name: str,
    kind: ClassName,
    key: InKey,
    request: Request,
    context: InContext,
    principal: Writer,
    end_tokens: Annotated[
        int, Query(ge=1, le=0xFFFFFFFF, description="End of the block, or boundary of the snapshot.")
    ],
    shard: InShard = 0,
    provenance: Annotated[Literal["exact", "replayed"], Query(description="What the caller claims.")] = "replayed",
    plan_id: Annotated[str | None, Query(min_length=1, max_length=64, description="The plan that ran.")] = None,
) -> Response:
    """Store one record durably. The first writer wins; with `If-None-Match: *` a second one gets a 412."""
    with context.parts.metrics.latency.labels("record").time():
        namespace = context.parts.namespaces.get_writable(principal, name)
        bodies.media_type(request, bodies.TOKENS_TYPE)
        size = namespace.shard_block_bytes if kind == "block" else namespace.shard_snapshot_bytes
        if not size:
            raise _refusal("wrong_class")
        payload = await bodies.read_bounded(request, size)
        claim = Provenance[provenance.upper()]
        header = FrameHeader(FrameKind[kind.upper()], bytes.fromhex(key), len(payload), 0, claim, shard, end_tokens)
        upload = Upload(namespace, ran_plan(context.parts, principal.tenant, namespace, plan_id))
        outcome = await context.run(_store_one, context.parts, upload, header, payload)
        return _write_response(outcome, write_once=request.headers.get("if-none-match", "").strip() == "*")


def _store_one(parts: Parts, upload: Upload, header: FrameHeader, payload: bytearray) -> Outcome:
    """Store a record whose checksum is still to be made. Blocking."""
    (outcome,) = store(parts, upload, [(header._replace(checksum=checksum_of(payload)), payload)])
    return outcome


def _write_response(outcome: Outcome, *, write_once: bool) -> Response:
    if outcome.outcome == "lost":
        raise ProblemError(503, "the tier does not serve; the record was not kept")
    if outcome.reason == "full":
        raise ProblemError(507, "no room, and nothing may be evicted for it; raise store.budget_bytes or let it expire")
    if outcome.reason == "no_key":
        raise ProblemError(507, "records are encrypted here and the tenant has no key; the operator can give it one")
    if outcome.outcome == "refused":
        raise _refusal(outcome.reason)
    if outcome.outcome == "duplicate" and write_once:
        raise ProblemError(412, "the record is there already, at least as good")
    response = json_response(outcome_document(outcome), 200 if outcome.outcome == "duplicate" else 201)
    response.headers["ETag"] = _etag(outcome.key.hex(), outcome.shard, outcome.generation)
    return response


def _refusal(reason: str) -> ProblemError:
    field, why = _REFUSALS[reason]
    return ProblemError(422, f"refused, {reason}: {why}", field=field, extra={"reason": reason})


@router.delete(
    "/{name}/records/{kind}/{key}",
    status_code=204,
    responses=problem_responses(404, 422, 503),
    summary="Delete a record",
)
async def delete_record(
    name: str, kind: ClassName, key: InKey, context: InContext, principal: Writer, shard: InShard = 0
) -> Response:
    """Forget one record. What a lease holds of it stays readable until the lease ends."""
    with context.parts.metrics.latency.labels("record").time():
        namespace = context.parts.namespaces.get_writable(principal, name)
        there = await context.run(
            records.delete_shard, context.parts, namespace, _class(kind), bytes.fromhex(key), shard
        )
        if not there:
            raise ProblemError(404, "not there", headers={MISS_HEADER: "never_stored"})
        return Response(status_code=204)


@router.post(
    "/{name}/touch",
    response_model=models.CountAnswer,
    responses=problem_responses(404, 413, 415, 422, 503),
    openapi_extra=bodies.json_body(models.KeysBody),
    summary="Renew records",
)
async def touch_records(name: str, request: Request, context: InContext, principal: Reader) -> dict[str, Any]:
    """Renew the life of records, all shards of each; answers how many records are alive."""
    with context.parts.metrics.latency.labels("touch").time():
        namespace = context.parts.namespaces.get(principal, name)
        kind, keys = await _keys(request, context)
        return {"records": await context.run(records.touch, context.parts, namespace, kind, keys)}


@router.post(
    "/{name}/delete",
    response_model=models.CountAnswer,
    responses=problem_responses(404, 413, 415, 422, 503),
    openapi_extra=bodies.json_body(models.KeysBody),
    summary="Delete records",
)
async def delete_records(name: str, request: Request, context: InContext, principal: Writer) -> dict[str, Any]:
    """Forget records, all shards of each; answers how many records were there."""
    with context.parts.metrics.latency.labels("delete").time():
        namespace = context.parts.namespaces.get_writable(principal, name)
        kind, keys = await _keys(request, context)
        return {"records": await context.run(records.delete, context.parts, namespace, kind, keys)}


async def _keys(request: Request, context: Context) -> tuple[RecordClass, list[bytes]]:
    limits = context.parts.settings.limits
    body = await bodies.read_model(request, models.KeysBody, limits.max_json_bytes)
    if len(body.keys) > limits.max_list_items:
        raise ProblemError(413, f"at most {limits.max_list_items} keys at a time", field="body.keys")
    keys = [bodies.hex_bytes(key, KEY_BYTES, "body.keys") for key in body.keys]
    return _class(body.class_), keys


def _class(kind: str) -> RecordClass:
    return RecordClass[kind.upper()]


def _headers(key: str, entry: Entry) -> dict[str, str]:
    return {
        "ETag": _etag(key, entry.id.shard, entry.generation),
        "Accept-Ranges": "bytes",
        "Kvshelf-Provenance": entry.provenance.name.lower(),
    } | ({} if entry.checksum == UNKNOWN_CHECKSUM else {"Kvshelf-Checksum": f"xxh3={entry.checksum:016x}"})


def _etag(key: str, shard: int, generation: int) -> str:
    return f'"{key}-{shard}-{generation}"'


def _has_it(request: Request, etag: str) -> bool:
    """Whether If-None-Match names what is there. Weak tags are compared by what they tag, as RFC 9110 has it."""
    tags = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    return bool(tags & {etag, "*"})
