"""Read bodies with a bound, and check what they say they are."""

from collections.abc import AsyncIterator
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from service.faces.problems import ProblemError, too_large
from service.faces.questions import problem_of_validation

TOKENS_TYPE = "application/octet-stream"
HASHES_TYPE = "application/vnd.kvshelf.hashes.v1"
JSON_TYPE = "application/json"
PIECE_BYTES = 512 << 10

M = TypeVar("M", bound=BaseModel)


def media_type(request: Request, *accepted: str) -> str:
    """The body's media type, which must be one of ``accepted``; raises a 415 otherwise."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise ProblemError(415, f"content-encoding {encoding[:64]!r} is not taken; send the bytes as they are")
    stated = request.headers.get("content-type", "").partition(";")[0].strip().lower()[:128]
    if stated not in accepted:
        raise ProblemError(415, f"content-type {stated!r} is not taken here; send {' or '.join(accepted)}")
    return stated


async def read_bounded(request: Request, limit_bytes: int, setting: str = "") -> bytearray:
    """The whole body, at most ``limit_bytes`` of it; raises a 413 as soon as it is known to be more.

    ``setting`` is what the limit follows from, for the 413 to name.
    """
    body = bytearray()
    async for chunk in _chunks(request, limit_bytes, setting):
        body += chunk
    return body


async def read_pieces(request: Request, limit_bytes: int, setting: str = "") -> AsyncIterator[bytearray]:
    """The body in pieces of ``PIECE_BYTES`` or a little more, for what need not have all of it in memory.

    Raises as :func:`read_bounded`.
    """
    piece = bytearray()
    async for chunk in _chunks(request, limit_bytes, setting):
        piece += chunk
        if len(piece) >= PIECE_BYTES:
            yield piece
            piece = bytearray()
    if piece:
        yield piece


async def _chunks(request: Request, limit_bytes: int, setting: str) -> AsyncIterator[bytes]:
    check_length(request, limit_bytes, setting)
    count = 0
    async for chunk in request.stream():
        count += len(chunk)
        if count > limit_bytes:
            raise too_large(limit_bytes, setting)
        yield chunk


def check_length(request: Request, limit_bytes: int, setting: str = "") -> int | None:
    """The announced length of the body, None when there is none; raises 400 or 413."""
    stated = request.headers.get("content-length")
    if stated is None:
        return None
    if not stated.isdecimal():
        raise ProblemError(400, f"content-length {stated!r} is no number")
    if int(stated) > limit_bytes:
        raise too_large(limit_bytes, setting)
    return int(stated)


def decode_model(body: bytes | bytearray, model: type[M]) -> M:
    """Validate a JSON body against a model; raises a 422 that names every field that is wrong."""
    try:
        return model.model_validate_json(bytes(body))
    except ValidationError as error:
        raise problem_of_validation(error, "body.") from None


async def read_model(request: Request, model: type[M], limit_bytes: int) -> M:
    """The JSON body as a model; raises 413, 415 or 422."""
    media_type(request, JSON_TYPE)
    return decode_model(await read_bounded(request, limit_bytes), model)


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI request body of a route that reads a model itself."""
    return {"requestBody": {"required": True, "content": {JSON_TYPE: {"schema": model.model_json_schema()}}}}


def hex_bytes(text: str, length_bytes: int | None, field: str) -> bytes:
    """Decode hexadecimal digits of a known length (None: any); raises a 422 that names ``field``."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        raise ProblemError(422, f"{field} takes hexadecimal digits", field=field) from None
    if length_bytes is not None and len(data) != length_bytes:
        raise ProblemError(422, f"{field} takes {2 * length_bytes} hexadecimal digits, got {len(text)}", field=field)
    return data
