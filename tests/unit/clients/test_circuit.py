"""The circuit breaker's states, on a clock that stands still."""

import threading
from collections.abc import Callable

import pytest

from kvshelf_client.circuit import WINDOW_CALLS, Breaker, BreakerState
from storage.clock import ManualClock

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def make(clock: ManualClock, *, faults: int = 3, jitter: Callable[[], float] = lambda: 0.0) -> Breaker:
    return Breaker(
        clock.monotonic, faults_to_open=faults, first_delay_seconds=0.5, max_delay_seconds=5.0, jitter=jitter
    )


def call(breaker: Breaker, is_well: bool | None) -> bool:
    """One call from begin to end; whether it was let through."""
    turn = breaker.begin()
    if turn is not None:
        breaker.end(turn, is_well=is_well)
    return turn is not None


@pytest.mark.parametrize("calls", ["bbb", "bwbwb", "wwwwwwwwbwwwwwbb", "bwwwwwwwwbbwwwwwb"])
def test_it_opens_at_the_third_fault_of_the_last_eight_and_not_before(calls: str) -> None:
    breaker = make(ManualClock())
    for is_well in [one == "w" for one in calls]:
        assert breaker.state is CLOSED
        assert call(breaker, is_well)
    assert breaker.state is OPEN
    assert not call(breaker, True)
    assert breaker.state is OPEN


def test_the_call_that_changes_the_state_is_told() -> None:
    clock = ManualClock()
    breaker = make(clock, faults=2)
    turns = [breaker.begin() for _ in range(4)]
    assert [breaker.end(turn or 0, is_well=False) for turn in turns] == [None, OPEN, None, None]
    for is_well, told in ((False, None), (True, CLOSED)):
        clock.advance(5)
        assert breaker.end(breaker.begin() or 0, is_well=is_well) is told


def test_a_probe_that_is_given_up_is_the_next_calls() -> None:
    clock = ManualClock()
    breaker = make(clock, faults=1)
    call(breaker, False)
    clock.advance(0.5)
    for _ in range(3):
        breaker.give_up(breaker.begin() or 0)
        assert breaker.state is OPEN
    assert call(breaker, True)
    assert breaker.state is CLOSED


def test_faults_that_are_far_apart_open_nothing() -> None:
    breaker = make(ManualClock())
    for _ in range(5):
        call(breaker, False)
        call(breaker, False)
        for _ in range(WINDOW_CALLS - 2 + 1):
            assert call(breaker, True)
        assert breaker.state is CLOSED


def test_after_the_delay_one_probe_goes_through_and_closes_it() -> None:
    clock = ManualClock()
    breaker = make(clock, faults=1)
    call(breaker, False)
    clock.advance(0.499)
    assert breaker.begin() is None
    clock.advance(0.002)
    probe = breaker.begin()
    assert probe is not None
    assert breaker.state is HALF_OPEN
    assert breaker.begin() is None, "one at a time"
    breaker.end(probe, is_well=True)
    assert breaker.state is CLOSED
    assert call(breaker, True)


def test_the_delay_doubles_up_to_its_limit() -> None:
    clock = ManualClock()
    breaker = make(clock, faults=1)
    call(breaker, False)
    for delay in (0.5, 1.0, 2.0, 4.0, 5.0, 5.0):
        clock.advance(delay - 0.001)
        assert not call(breaker, False)
        clock.advance(0.002)
        assert call(breaker, False)


@pytest.mark.parametrize(("well", "delay"), [(0, 1.0), (WINDOW_CALLS - 1, 1.0), (WINDOW_CALLS, 0.5)])
def test_the_delay_starts_anew_once_all_went_well_for_a_while(well: int, delay: float) -> None:
    clock = ManualClock()
    breaker = make(clock, faults=1)
    call(breaker, False)
    clock.advance(0.501)
    for _ in range(1 + well):
        assert call(breaker, True)
    assert breaker.state is CLOSED
    call(breaker, False)
    clock.advance(delay - 0.001)
    assert not call(breaker, True)
    clock.advance(0.002)
    assert call(breaker, True)


def test_jitter_cuts_a_delay_by_up_to_a_fifth() -> None:
    clock, shares = ManualClock(), iter([0.0, 0.5, 0.9999])
    breaker = make(clock, faults=1, jitter=lambda: next(shares))
    for delay in (0.5, 0.9, 1.6001):
        call(breaker, False)
        clock.advance(delay - 0.001)
        assert breaker.begin() is None
        clock.advance(0.0011)


def test_calls_from_before_a_change_say_nothing_about_it() -> None:
    clock = ManualClock()
    breaker = make(clock, faults=2)
    early_well, early_bad = breaker.begin(), breaker.begin()
    assert early_well is not None
    assert early_bad is not None
    call(breaker, False)
    call(breaker, False)
    assert breaker.state is OPEN
    breaker.end(early_well, is_well=True)
    assert breaker.state is OPEN
    clock.advance(0.501)
    assert call(breaker, True)
    breaker.end(early_bad, is_well=False)
    call(breaker, False)
    assert breaker.state is CLOSED, "one fault since it closed"


def test_a_call_without_an_answer_fails_a_probe_and_nothing_else() -> None:
    clock = ManualClock()
    breaker = make(clock, faults=1)
    call(breaker, None)
    assert breaker.state is CLOSED
    call(breaker, False)
    clock.advance(0.501)
    call(breaker, None)
    assert breaker.state is OPEN
    clock.advance(1.001)
    assert call(breaker, True)
    assert breaker.state is CLOSED


@pytest.mark.parametrize(
    ("faults", "first", "longest"), [(0, 0.5, 5.0), (WINDOW_CALLS + 1, 0.5, 5.0), (1, 0.0, 5.0), (1, 5.1, 5.0)]
)
def test_nonsense_is_refused(faults: int, first: float, longest: float) -> None:
    with pytest.raises(ValueError):
        Breaker(
            ManualClock().monotonic,
            faults_to_open=faults,
            first_delay_seconds=first,
            max_delay_seconds=longest,
            jitter=lambda: 0.0,
        )


def test_of_many_threads_one_probes() -> None:
    clock = ManualClock()
    breaker = make(clock, faults=1)
    call(breaker, False)
    clock.advance(1.0)
    turns: list[int | None] = []
    threads = [threading.Thread(target=lambda: turns.append(breaker.begin())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([turn for turn in turns if turn is not None]) == 1
