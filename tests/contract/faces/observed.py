"""What a scenario has seen, as plain data that two faces are compared by."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import pytest

from kvshelf_client.errors import ServiceError

_ID = re.compile(r"id-\d{6}|\b[0-9a-f]{24}\b")
"""An id that the service makes, and one of a call, which the client makes."""
_PLACE = re.compile(r"\b(query|path|body|header)\.")
_PLACELESS = frozenset({"body", "frames", "tokens", "hashes"})


def plain(value: Any) -> Any:
    """Plain data, all the way down, with the names of what it is made of."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(part) for name, part in value._asdict().items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


def refused(call: Callable[[], object]) -> Any:
    """What a call was refused with; the test fails when it was not.

    Where a field stands is the face's own: REST says ``query.shard`` and gRPC ``shard``.
    """
    with pytest.raises(ServiceError) as caught:
        call()
    error = caught.value
    problem = dict(error.problem)
    assert problem["request_id"] == error.request_id, "the service calls it as the client does"
    faults = problem.get("errors")
    assert isinstance(faults, list)
    problem["errors"] = [_without_place(fault) for fault in faults]
    problem["detail"] = _PLACE.sub("", str(problem["detail"]))
    return {"status": error.status, "fault": error.fault.value, "retry": error.retry_after_seconds, **problem}


def _without_place(fault: dict[str, str]) -> dict[str, str]:
    field = fault["field"].rpartition(".")[2]
    return {"field": "body" if field in _PLACELESS else field, "message": _PLACE.sub("", fault["message"])}


def with_ids_in_order(observation: Any) -> Any:
    """The ids that were made, numbered as they appear."""
    seen: dict[str, str] = {}

    def rename(value: Any) -> Any:
        if isinstance(value, str):
            return _ID.sub(lambda found: seen.setdefault(found.group(), f"id {len(seen)}"), value)
        if isinstance(value, dict):
            return {name: rename(part) for name, part in value.items()}
        return [rename(part) for part in value] if isinstance(value, list) else value

    return rename(observation)
