"""The tier's time: follows the wall clock, never goes back."""

import pytest

from storage.clock import ManualClock
from storage.ssd.shelf_clock import ShelfClock


def test_it_follows_the_wall_clock() -> None:
    clock = ManualClock()
    shelf = ShelfClock(clock, 0.0)
    for seconds in (0.0, 0.5, 3600.0):
        clock.advance(seconds)
        assert shelf.now() == clock.now()


def test_a_step_forward_is_believed() -> None:
    clock = ManualClock()
    shelf = ShelfClock(clock, 0.0)
    clock.step(90_000)
    assert shelf.now() == clock.now()


@pytest.mark.parametrize("back", [2.0, 3600.0, 10_000_000.0])
def test_a_step_back_stops_no_time(back: float) -> None:
    clock = ManualClock()
    shelf = ShelfClock(clock, 0.0)
    before = shelf.now()
    clock.step(-back)
    assert shelf.now() == before
    clock.advance(10)
    assert shelf.now() == before + 10


def test_a_step_back_that_is_put_right_costs_no_life() -> None:
    clock = ManualClock()
    shelf = ShelfClock(clock, 0.0)
    clock.step(-3600)
    shelf.now()
    clock.advance(60)
    clock.step(3600)
    assert shelf.now() == clock.now()
    clock.step(3600)
    assert shelf.now() == clock.now(), "a step with none before it"


def test_drift_is_no_step() -> None:
    clock = ManualClock()
    shelf = ShelfClock(clock, 0.0)
    before = shelf.now()
    clock.step(-0.5)
    assert shelf.now() == before
    clock.advance(1)
    assert shelf.now() == clock.now() == before + 0.5


def test_it_goes_on_from_what_was_written_before() -> None:
    clock = ManualClock(1000.0)
    shelf = ShelfClock(clock, 5000.0)
    assert shelf.now() == 5000.0
    clock.advance(7)
    assert shelf.now() == 5007.0
    assert ShelfClock(clock, 500.0).now() == clock.now()
