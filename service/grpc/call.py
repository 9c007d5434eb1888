"""One call of a verb: what it works with, and what is undone when its answer cannot be delivered."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from service.access import Principal, Scope
from service.faces.admission import Admitted
from service.faces.context import Context


@dataclass(slots=True)
class Call:
    """A call under way. ``undo`` is called when it ends (deadline, cancellation, a broken connection) unanswered."""

    context: Context
    principal: Principal
    admitted: Admitted
    undo: Callable[[], None] = field(default=lambda: None)


Unary = Callable[[Call, Any], Awaitable[Message]]
"""A request, one answer."""
Download = Callable[[Call, Any], AsyncGenerator[bytes, None]]
"""A request, a stream of encoded messages."""
Upload = Callable[[Call, AsyncIterator[bytes]], Awaitable[Message]]
"""A stream of encoded messages, one answer."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: the label it is timed under, the scope it takes (None: anybody), and its one way to answer.

    ``while_draining`` says that it is answered during a stop, too. Bulk goes as encoded bytes, see
    :mod:`kvshelf_client.grpc.chunks`; everything else as messages.
    """

    label: str
    scope: Scope | None
    unary: Unary | None = None
    download: Download | None = None
    upload: Upload | None = None
    while_draining: bool = False
