"""Encode large JSON answers without going through a model; :mod:`service.rest.models` has their shape all the same."""

from typing import Any

import msgspec
from fastapi import Response


def json_response(document: Any, status: int = 200) -> Response:
    """A JSON response of plain data."""
    return encoded_response(msgspec.json.encode(document), status)


def encoded_response(encoded: bytes, status: int = 200) -> Response:
    """A response of what is JSON already."""
    return Response(encoded, status, media_type="application/json")
