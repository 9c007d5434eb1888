"""The id that a call is known by on both sides: sent along, in the service's log, in its answers and in errors."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

HEADER: Final = "x-request-id"
"""The header of REST, and the key in the metadata of gRPC."""
MAX_CHARACTERS: Final = 128
_ID_BYTES = 12
_IS_ID = re.compile(rf"[A-Za-z0-9._:/@+=~-]{{1,{MAX_CHARACTERS}}}").fullmatch

_given: ContextVar[str | None] = ContextVar("kvshelf_request_id", default=None)


def is_request_id(text: str) -> bool:
    """Whether it may be one: 1 to 128 ASCII letters, digits and ``. _ : / @ + = ~ -``, which garble no log."""
    return _IS_ID(text) is not None


def new_request_id() -> str:
    """One that nobody else has: 24 hexadecimal digits."""
    return os.urandom(_ID_BYTES).hex()


@contextmanager
def with_request_id(request_id: str) -> Iterator[None]:
    """All calls of a client within, of this thread or task, carry this id, such as that of the request they are for.

    Raises:
        ValueError: see :func:`is_request_id`.
    """
    if not is_request_id(request_id):
        raise ValueError(
            f"a request id has 1 to {MAX_CHARACTERS} letters, digits or ._:/@+=~-, not {request_id[:160]!r}"
        )
    before = _given.set(request_id)
    try:
        yield
    finally:
        _given.reset(before)


def id_of_call(name: str = "") -> str:
    """The id of a call that begins: what the caller has given, else ``name`` where that may be one, else a new one."""
    return _given.get() or (name if is_request_id(name) else new_request_id())
