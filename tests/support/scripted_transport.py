"""A transport that answers by script, for what stands above transports."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from kvshelf_client.answers import PlanAnswer
from kvshelf_client.deadline import Deadline
from kvshelf_client.frames import HEADER_BYTES, unpack_header
from kvshelf_client.requests import AskPlan, Fetch, Request

T = TypeVar("T")

Outcome = Any
"""What a call comes to: an answer; an exception, which is raised; or, for a fetch, bytes: the frames that come."""


class ScriptedTransport:
    """Answers one call after the other with the next outcome, and keeps what was asked. A plan is of who asks for it.

    Args:
        outcomes: one a call. A list is a fetch that brings its first item and then raises the second.
        on_call: called with the seconds that are left of each call.
    """

    def __init__(self, *outcomes: Outcome, on_call: Callable[[float], object] = lambda seconds: None) -> None:
        self.outcomes = list(outcomes)
        self.asked: list[Request[Any]] = []
        self.is_closed = False
        self._on_call = on_call

    def call(self, request: Request[T], deadline: Deadline) -> T:
        """See :meth:`Transport.call`."""
        self.asked.append(request)
        self._on_call(deadline.remaining_seconds)
        outcome = self.outcomes.pop(0)
        parts = outcome if isinstance(outcome, list) else [outcome]
        for part in parts:
            if isinstance(part, BaseException):
                raise part
            if isinstance(request, Fetch):
                _bring(request, part)
        if isinstance(request, AskPlan) and isinstance(outcome, PlanAnswer):
            outcome = outcome._replace(request_id=request.request_id)
        return cast("T", outcome)

    def close(self) -> None:
        """See :meth:`Transport.close`."""
        self.is_closed = True


class AsyncScriptedTransport(ScriptedTransport):
    """The same for asyncio."""

    async def call(self, request: Request[T], deadline: Deadline) -> T:  # type: ignore[override]
        """See :meth:`AsyncTransport.call`."""
        return super().call(request, deadline)

    async def close(self) -> None:  # type: ignore[override]
        """See :meth:`AsyncTransport.close`."""
        super().close()


def _bring(request: Fetch, frames: bytes) -> None:
    while frames:
        header = unpack_header(frames[:HEADER_BYTES])
        end = HEADER_BYTES + header.length_bytes
        request.sink.begin(header)[:] = frames[HEADER_BYTES:end]
        request.sink.end()
        frames = frames[end:]
