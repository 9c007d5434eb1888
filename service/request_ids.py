"""The id of the request that is being answered: the caller's or one made here, for log lines and answers.

It goes where the context of the task or thread goes; :class:`~service.faces.context.Context` hands that to its threads.
"""

from contextvars import ContextVar

from structlog.typing import EventDict

from kvshelf_client.request_ids import is_request_id, new_request_id

_in_force: ContextVar[str | None] = ContextVar("request_id", default=None)


def request_id_of(sent: str | None) -> str:
    """What a caller sent, if it may be an id; else a new one."""
    return sent if sent is not None and is_request_id(sent) else new_request_id()


def begin_request_id(sent: str | None) -> str:
    """From here on this task or thread answers a request; returns its id, as :func:`request_id_of`."""
    request_id = request_id_of(sent)
    _in_force.set(request_id)
    return request_id


def request_id_in_force() -> str | None:
    """The id of the request that this task or thread answers; None where it answers none."""
    return _in_force.get()


def add_request_id(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Put the id into a line of the log; a processor of structlog."""
    request_id = _in_force.get()
    if request_id is not None:
        event["request_id"] = request_id
    return event
