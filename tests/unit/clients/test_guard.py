"""Retries within the budget, and the breaker that spares an engine a service that is away; on a manual clock."""

from typing import Any

import pytest

from kvshelf_client.circuit import BreakerState
from kvshelf_client.counters import Counters
from kvshelf_client.deadline import Deadline
from kvshelf_client.errors import (
    AnswerError,
    BreakerOpenError,
    DeadlineError,
    KvshelfError,
    MissError,
    ServiceError,
    UnreachableError,
)
from kvshelf_client.guard import Guard, Pause, Try
from kvshelf_client.requests import Release, Request, Stats, Store
from kvshelf_client.steps import run
from storage.clock import ManualClock

AWAY = UnreachableError("refused")
STORE = Store("n", [], 0)


class World:
    """A guard whose transport answers by script and whose time is the test's."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.counters = Counters()
        self.guard = Guard(self.counters, self.clock.monotonic, jitter=lambda: 0.0, budget_seconds=2.0)
        self.seconds = 0.0
        self.outcomes: list[Any] = []
        self.tries = 0
        self.pauses: list[float] = []
        self.left: list[float] = []

    has_places = True

    def call(self, *outcomes: Any, request: Request[Any] | None = None, seconds: float = 10.0) -> Any:
        """Make a call that meets these outcomes; an exception among them is raised."""
        self.outcomes = list(outcomes)
        self.tries = 0
        return run(self.guard.call(request or Stats(), Deadline(seconds, self.clock.monotonic)), self._do)

    def _do(self, step: Try | Pause) -> Any:
        if isinstance(step, Pause):
            self.pauses.append(step.seconds)
            self.clock.advance(step.seconds)
            return None
        self.tries += 1
        if self.has_places:
            step.begin()
        self.clock.advance(self.seconds)
        self.left.append(step.deadline.remaining_seconds)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def fail(self, error: BaseException, times: int = 1, **how: Any) -> None:
        """Make calls that meet nothing but this error."""
        for _ in range(times):
            with pytest.raises(type(error)):
                self.call(*[error] * 3, **how)


@pytest.fixture
def world() -> World:
    return World()


def test_a_read_is_tried_again_at_once_and_then_after_a_moment(world: World) -> None:
    assert world.call(AWAY, AWAY, "answer") == "answer"
    assert (world.tries, world.pauses) == (3, [0.05])
    assert world.counters.snapshot() == {"stats": {"retried": 2, "ok": 1}}


def test_a_third_time_is_the_last(world: World) -> None:
    world.fail(AWAY)
    assert world.tries == 3
    assert world.counters.snapshot() == {"stats": {"retried": 2, "unreachable": 1}}


def test_a_store_is_sent_once(world: World) -> None:
    world.fail(AWAY, request=STORE)
    world.fail(ServiceError(503, {}, 0.1), request=STORE)
    assert world.tries == 1


@pytest.mark.parametrize("error", [DeadlineError("late"), MissError("evicted"), ServiceError(422, {})])
def test_what_will_not_get_better_is_not_tried_again(world: World, error: KvshelfError) -> None:
    world.fail(error)
    assert world.tries == 1


@pytest.mark.parametrize(("seconds", "tries"), [(3.0, 1), (3.1, 2)])
def test_retry_after_is_waited_for_if_there_is_time(world: World, seconds: float, tries: int) -> None:
    busy = ServiceError(503, {}, retry_after_seconds=3.0)
    try:
        assert world.call(busy, "answer", seconds=seconds) == "answer"
    except ServiceError as error:
        assert error is busy  # noqa: PT017 - Whether it is raised depends on the time there is.
    assert world.tries == tries
    assert world.pauses == [3.0] * (tries - 1)


def test_a_budget_that_is_over_has_no_retries(world: World) -> None:
    world.seconds = 0.5
    world.fail(AWAY, seconds=0.5)
    assert world.tries == 1


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_budget_that_was_over_before_is_a_timeout_and_nothing_is_sent(world: World, seconds: float) -> None:
    for _ in range(5):
        with pytest.raises(DeadlineError):
            world.call(seconds=seconds)
    assert world.tries == 0
    assert world.counters.snapshot() == {"stats": {"timeout": 5}}
    assert world.guard.state is BreakerState.CLOSED


@pytest.mark.parametrize(("waited_seconds", "state"), [(0.74, "closed"), (0.76, "open")])
def test_a_timeout_counts_where_the_service_had_a_sane_time(world: World, waited_seconds: float, state: str) -> None:
    """An impatient caller says nothing about the service."""
    world.seconds = waited_seconds
    world.fail(DeadlineError("late"), times=3, seconds=waited_seconds)
    assert world.guard.state.value == state


def test_silence_that_ends_a_call_before_its_time_is_the_services(world: World) -> None:
    """After ``read_seconds`` or ``connect_seconds``, which somebody has set for it."""
    world.seconds = 0.1
    world.fail(DeadlineError("silent"), times=3, seconds=10)
    assert world.guard.state is BreakerState.OPEN


def test_the_time_in_the_line_of_the_clients_own_calls_is_not_the_services(world: World) -> None:
    world.seconds, world.has_places = 2.0, False
    world.fail(DeadlineError("no place"), times=10, seconds=2.0)
    assert world.guard.state is BreakerState.CLOSED


def test_an_impatient_probe_leaves_the_next_one_to_somebody_else(world: World) -> None:
    open_breaker(world)
    world.clock.advance(0.1)
    world.seconds = 0.001
    world.fail(DeadlineError("late"), seconds=0.001)
    assert world.guard.state is BreakerState.OPEN
    assert world.call("answer") == "answer"
    assert world.counters.snapshot()["breaker"] == {"opened": 1, "closed": 1}


def test_a_release_that_was_done_before_its_retry_is_done(world: World) -> None:
    gone = ServiceError(404, {})
    assert world.call(AWAY, gone, request=Release("l1")) is None
    world.fail(gone, request=Release("l1"))


def open_breaker(world: World) -> None:
    world.fail(AWAY, times=3)
    assert world.guard.state is BreakerState.OPEN


def test_three_faults_among_the_last_calls_open_the_breaker(world: World) -> None:
    world.fail(AWAY, times=2)
    for _ in range(8):
        world.call("answer")
    world.fail(AWAY)
    world.call("answer")
    world.fail(AWAY)
    assert "breaker" not in world.counters.snapshot()
    world.seconds = 1.0
    world.fail(DeadlineError("late"), seconds=1.0)
    assert world.guard.state is BreakerState.OPEN
    with pytest.raises(BreakerOpenError):
        world.call("answer")
    assert world.tries == 0
    assert world.counters.snapshot()["breaker"] == {"opened": 1}
    assert world.counters.snapshot()["stats"]["breaker_open"] == 1


@pytest.mark.parametrize(
    "error", [MissError("expired"), ServiceError(404, {}), ServiceError(503, {}), ServiceError(401, {})]
)
def test_a_service_that_answers_is_not_away(world: World, error: KvshelfError) -> None:
    world.fail(error, times=10)
    assert world.guard.state is BreakerState.CLOSED


def test_an_opening_counts_once_however_many_calls_were_under_way(world: World) -> None:
    calls = [world.guard.call(Stats(), Deadline(10, world.clock.monotonic)) for _ in range(6)]
    for one in calls:
        next(one)
    for one in calls:
        with pytest.raises(AnswerError):
            one.throw(AnswerError("no JSON"))
    assert world.counters.snapshot() == {"stats": {"malformed": 6}, "breaker": {"opened": 1}}


def test_a_probe_that_goes_well_closes_it(world: World) -> None:
    open_breaker(world)
    world.clock.advance(0.1)
    assert world.call("answer") == "answer"
    assert world.guard.state is BreakerState.CLOSED
    assert world.counters.snapshot()["breaker"] == {"opened": 1, "closed": 1}


def test_it_probes_twice_a_second_at_least_however_long_it_takes(world: World) -> None:
    open_breaker(world)
    for _ in range(10):
        world.clock.advance(0.5)
        world.fail(AWAY)
    world.clock.advance(0.5)
    assert world.call("answer") == "answer"
    assert world.counters.snapshot()["breaker"] == {"opened": 1, "closed": 1}


def test_a_probe_takes_a_second_at_most(world: World) -> None:
    """It may meet a connection that nobody is behind any more."""
    open_breaker(world)
    world.clock.advance(0.5)
    world.left.clear()
    world.call("answer", seconds=60)
    world.call("answer", seconds=60)
    assert world.left == [pytest.approx(1.0), 60.0]


def test_an_interrupt_counts_as_nothing(world: World) -> None:
    world.fail(AWAY, times=2)
    world.fail(KeyboardInterrupt(), times=5)
    assert world.guard.state is BreakerState.CLOSED
    assert "stats" in world.counters.snapshot()
