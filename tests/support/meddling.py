"""A transport that something happens to between two calls of a client: what is behind it is a real one."""

from collections.abc import Callable, Iterator
from typing import TypeVar, cast

from kvshelf_client.answers import PlanAnswer
from kvshelf_client.deadline import Deadline
from kvshelf_client.frames import Frame, FrameHeader
from kvshelf_client.requests import Fetch, Release, Request
from kvshelf_client.transport import Transport
from tests.support.sinks import CollectingSink

T = TypeVar("T")


class MeddlingTransport:
    """Passes every request on.

    Args:
        transport: to the real service.
        after_plan: called with each plan before the client sees it.
        on_frames: may change the frames of a fetch on their way.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        after_plan: Callable[[PlanAnswer], None] = lambda plan: None,
        on_frames: Callable[[Iterator[Frame]], Iterator[Frame]] = lambda frames: frames,
    ) -> None:
        self._transport = transport
        self._after_plan = after_plan
        self._on_frames = on_frames
        self.plans: list[PlanAnswer] = []
        self.released: list[tuple[str, str]] = []

    def call(self, request: Request[T], deadline: Deadline) -> T:
        """See :meth:`Transport.call`."""
        if isinstance(request, Fetch):
            return cast("T", self._fetch(request, deadline))
        if isinstance(request, Release):
            self.released.append((request.lease_id, request.ran))
        answer = self._transport.call(request, deadline)
        if isinstance(answer, PlanAnswer):
            self.plans.append(answer)
            self._after_plan(answer)
        return answer

    def close(self) -> None:
        """See :meth:`Transport.close`."""
        self._transport.close()

    def _fetch(self, request: Fetch, deadline: Deadline) -> None:
        collected = CollectingSink()
        self._transport.call(Fetch(request.lease_id, collected, request.shard, request.fallback), deadline)
        for header, payload in self._on_frames(map(_frame, collected.headers, collected.payloads)):
            request.sink.begin(header)[:] = payload
            request.sink.end()


def _frame(header: FrameHeader, payload: bytes) -> Frame:
    return Frame(header, bytearray(payload))
