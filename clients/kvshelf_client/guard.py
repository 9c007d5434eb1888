"""What stands between a verb and a transport: the breaker, retries within the time budget, and the counters."""

import logging
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from kvshelf_client.circuit import Breaker, BreakerState
from kvshelf_client.counters import Counters
from kvshelf_client.deadline import Deadline, Monotonic
from kvshelf_client.errors import BreakerOpenError, DeadlineError, KvshelfError, ServiceError, UnreachableError
from kvshelf_client.landing import Landing
from kvshelf_client.requests import Release, Request

T = TypeVar("T")

_LOG = logging.getLogger("kvshelf_client")
_RETRIES = 2
_RETRY_SECONDS = 0.05
_PROBE_SECONDS = 1.0
"""The longest a call takes that finds out whether the service is back: it may wait on a connection that is dead."""
_MOST_PATIENCE_SECONDS = 0.75
_FAULTS_TO_OPEN, _FIRST_DELAY_SECONDS, _MAX_DELAY_SECONDS = 3, 0.1, 0.5
_NOT_FOUND = 404


class Try:
    """To be done: one request over the transport, as soon as there is a place for it.

    Whoever does it calls :meth:`begin` when it has its place: what it has waited until then was for other calls of this
    client, and says nothing about the service.
    """

    __slots__ = ("_begun_at", "_monotonic", "deadline", "request")

    def __init__(self, request: Request[Any], deadline: Deadline, monotonic: Monotonic) -> None:
        self.request = request
        self.deadline = deadline
        self._monotonic = monotonic
        self._begun_at: float | None = None

    def begin(self) -> None:
        """The request is about to be sent."""
        self._begun_at = self._monotonic()

    @property
    def seconds(self) -> float:
        """How long ago it began, 0 if it has not."""
        return 0.0 if self._begun_at is None else self._monotonic() - self._begun_at


class Pause(NamedTuple):
    """To be done: wait."""

    seconds: float


Steps = Generator[Try | Pause, Any, T]


class Guard:
    """Makes the calls of one client. Thread-safe.

    Three calls that came to nothing, among the last few, open the breaker; then calls end at once, but one every tenth
    to half of a second, which finds out whether the service is back. A call whose time was up counts only where the
    service had a sane time to answer it: how little time a caller has says nothing about the service.

    Args:
        counters: counts each call under its verb, ``ok`` or the fault.
        monotonic: the clock of the breaker.
        jitter: numbers in [0, 1) that keep many clients from probing as one.
        budget_seconds: what calls have as a rule. A sane time is half of it, and three quarters of a second at most.
    """

    def __init__(
        self, counters: Counters, monotonic: Monotonic, jitter: Callable[[], float], budget_seconds: float
    ) -> None:
        self._counters = counters
        self._monotonic = monotonic
        self._patience_seconds = min(budget_seconds / 2, _MOST_PATIENCE_SECONDS)
        self._breaker = Breaker(
            monotonic,
            faults_to_open=_FAULTS_TO_OPEN,
            first_delay_seconds=_FIRST_DELAY_SECONDS,
            max_delay_seconds=_MAX_DELAY_SECONDS,
            jitter=jitter,
        )

    @property
    def state(self) -> BreakerState:
        """Whether calls are made."""
        return self._breaker.state

    def call(
        self,
        request: Request[T],
        deadline: Deadline,
        landing: Landing | None = None,
        judge: Callable[[T], None] | None = None,
    ) -> Steps[T]:
        """Make a call; raises KvshelfError when it comes to nothing.

        Args:
            request: what is asked.
            deadline: for all of it.
            landing: where a fetch goes.
            judge: raises AnswerError on an answer that cannot be one.
        """
        if deadline.is_over:
            raise self._failed(request, DeadlineError("the time was up before the call began"))
        is_probe = self._breaker.state is not BreakerState.CLOSED
        turn = self._breaker.begin()
        if turn is None:
            raise self._failed(request, BreakerOpenError("the service did not answer the calls before this one"))
        is_well: bool | None = None
        within = deadline.within(_PROBE_SECONDS) if is_probe else deadline
        try:
            answer = yield from self._attempt(request, within, landing)
            if judge is not None:
                judge(answer)
            is_well = True
        except KvshelfError as error:
            is_well = None if error.is_in_doubt else not error.is_outage
            self._failed(request, error)
            raise
        finally:
            self._end(turn, is_well)
        self._counters.add(request.verb, "ok")
        return answer

    def _failed(self, request: Request[Any], error: KvshelfError) -> KvshelfError:
        self._counters.add(request.verb, error.fault.value)
        return error.about(request.call_id)

    def _attempt(self, request: Request[T], deadline: Deadline, landing: Landing | None) -> Steps[T]:
        """Try, and try again what may be tried again, as long as there is time."""
        waited_seconds = 0.0
        for attempt in range(_RETRIES + 1):
            if attempt and landing is not None:
                landing.restart()
            one = Try(request, deadline, self._monotonic)
            try:
                answer: T = yield one
                if landing is not None:
                    landing.finish()
            except DeadlineError as error:
                error.is_in_doubt = deadline.is_over and waited_seconds + one.seconds < self._patience_seconds
                raise
            except (UnreachableError, ServiceError) as error:
                if attempt and isinstance(request, Release) and _is_gone(error):
                    return None  # type: ignore[return-value]  # The first try has done it, and its answer was lost.
                waited_seconds += one.seconds
                pause = _pause_after(error, attempt)
                may_repeat = request.may_repeat and attempt < _RETRIES
                if not may_repeat or pause is None or pause >= deadline.remaining_seconds:
                    raise
                self._counters.add(request.verb, "retried")
                if pause:
                    yield Pause(pause)
            else:
                return answer
        raise AssertionError("the last attempt returns or raises")

    def _end(self, turn: int, is_well: bool | None) -> None:
        """Tell the breaker; a call that was in doubt, or that its caller has broken off, tells it nothing."""
        if is_well is None:
            self._breaker.give_up(turn)
            return
        became = self._breaker.end(turn, is_well=is_well)
        if became is BreakerState.OPEN:
            self._counters.add("breaker", "opened")
            _LOG.warning("kvshelf does not answer; requests run without it until it does")
        elif became is BreakerState.CLOSED:
            self._counters.add("breaker", "closed")
            _LOG.info("kvshelf answers again")


def _is_gone(error: KvshelfError) -> bool:
    return isinstance(error, ServiceError) and error.status == _NOT_FOUND


def _pause_after(error: KvshelfError, attempt: int) -> float | None:
    """How long to wait before the next try, or None when there is to be none.

    The first one is at once: a kept connection may have been closed by a service that is up.
    """
    if isinstance(error, ServiceError):
        return error.retry_after_seconds
    return _RETRY_SECONDS * attempt
