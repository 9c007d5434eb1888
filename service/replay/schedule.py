"""Which request of a trace may start, and which has to wait for others of its session. Pure.

A request waits for the one before it in its line (see :attr:`TraceRequest.line`). A sub-agent sets out once the
session's main line has finished what it asked before, and the main line waits for every sub-agent whose last request
is earlier than its own next. All else of a session runs side by side, as it does in the trace. Requests of a trace
that knows no sessions wait for nobody.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from service.traces.base import Trace, TraceRequest


@dataclass(slots=True)
class Step:
    """A request in its place.

    Args:
        number: its place in the order of the trace, from 0; later rounds count on.
        request: what to send. Its time counts from the start of the first round.
        session: all steps that end together.
    """

    number: int
    request: TraceRequest
    session: "Session"
    waits_for: int = 0
    followers: "list[Step]" = field(default_factory=list)

    def __lt__(self, other: "Step") -> bool:
        return self.number < other.number


@dataclass(slots=True)
class Session:
    """The steps of a session, of which ``left`` are not finished; a single one where the trace knows no session."""

    steps: list[Step]
    left: int


class Schedule:
    """Hands out steps, the earliest that may start first. Not for several threads.

    Args:
        trace: the requests.
        sessions_at_once: how many sessions are under way; None for as many as there are.
        is_endless: a trace that is over begins anew, as other sessions.
    """

    def __init__(self, trace: Trace, *, sessions_at_once: int | None = None, is_endless: bool = False) -> None:
        self._sessions = _all_sessions(trace, is_endless=is_endless)
        self._next = next(self._sessions, None)
        self._most = sessions_at_once
        self._under_way = 0
        self._ready: list[Step] = []

    def take(self) -> Step | None:
        """The earliest step that may start, which is taken; None where all wait, or all are done."""
        step = self.peek()
        if step is not None:
            heapq.heappop(self._ready)
        return step

    def peek(self) -> Step | None:
        """What :meth:`take` would take."""
        while self._next is not None and self._has_room(self._next):
            self._under_way += 1
            for step in self._next.steps:
                if not step.waits_for:
                    heapq.heappush(self._ready, step)
            self._next = next(self._sessions, None)
        return self._ready[0] if self._ready else None

    def finish(self, step: Step) -> bool:
        """A step is done; what waits for it may start. Returns whether its session is over."""
        for follower in step.followers:
            follower.waits_for -= 1
            if not follower.waits_for:
                heapq.heappush(self._ready, follower)
        step.session.left -= 1
        self._under_way -= not step.session.left
        return not step.session.left

    def _has_room(self, session: Session) -> bool:
        """Without a bound a session begins when its turn has come, so that an endless trace can be handed out."""
        if self._most is None:
            return not self._ready or session.steps[0] < self._ready[0]
        return self._under_way < self._most


def _all_sessions(trace: Trace, *, is_endless: bool) -> Iterator[Session]:
    """The sessions in order of their first requests, made when they are asked for."""
    groups: dict[object, list[int]] = {}
    for number, request in enumerate(trace.requests):
        groups.setdefault(number if request.session is None else request.session, []).append(number)
    requests, first = trace.requests, 0
    while True:
        for numbers in groups.values():
            yield _linked([first + number for number in numbers], [requests[number] for number in numbers], trace)
        if not is_endless:
            return
        first += len(requests)


def _linked(numbers: Sequence[int], requests: Sequence[TraceRequest], trace: Trace) -> Session:
    """The steps of one session, each with what it waits for."""
    session = Session([], len(requests))
    left_of = Counter(request.line for request in requests)
    last: dict[str | None, Step] = {}
    for number, request in zip(numbers, requests, strict=True):
        step = Step(number, _in_round(request, number // len(trace.requests), trace), session)
        agent = request.agent
        before = [last[agent]] if agent in last else [last[None]] if None in last else []
        if agent is None:
            back = [each for each in last if each is not None and not left_of[request.session, each]]
            before += [last.pop(each) for each in back]
        for each in before:
            each.followers.append(step)
        step.waits_for = len(before)
        left_of[request.line] -= 1
        last[agent] = step
        session.steps.append(step)
    return session


def _in_round(request: TraceRequest, number: int, trace: Trace) -> TraceRequest:
    """The request as one of a later round: another session, whose tokens are others, too."""
    if not number:
        return request
    return replace(
        request,
        time_seconds=request.time_seconds + number * trace.duration_seconds,
        session=None if request.session is None else f"{request.session}, round {number}",
        scope=f"{request.scope or ''}, round {number}",
    )
