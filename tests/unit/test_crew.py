"""The threads of the event loop: what is handed to them is done once, in order, and nothing of it is kept."""

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial

import pytest

from service.faces.crew import ClosedError, Crew

WHO: ContextVar[str] = ContextVar("who", default="nobody")


class Thing:
    """Something that can be watched going."""


def with_crew(count: int, play: Callable[[Crew], object]) -> None:
    """Run a coroutine function with a crew, which is closed at the end."""

    async def run() -> None:
        crew = Crew(count, "crew")
        try:
            await play(crew)  # type: ignore[misc]
        finally:
            crew.close()
        assert not [one for one in threading.enumerate() if one.name.startswith("crew")]

    asyncio.run(run())


def test_results_and_errors_come_back_and_the_context_goes_along() -> None:
    def fail() -> None:
        raise KeyError("gone")

    async def play(crew: Crew) -> None:
        WHO.set("caller")
        assert await crew.run(WHO.get) == "caller"
        with pytest.raises(KeyError, match="gone"):
            await crew.run(fail)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await crew.run(lambda: next(iter(())))
        assert await crew.run(lambda: 1) == 1, "a thread outlives the errors of its calls"

    with_crew(1, play)


@pytest.mark.parametrize("count", [1, 3])
def test_there_are_never_more_threads_than_that_nor_fewer_than_it_takes(count: int) -> None:
    meeting = threading.Barrier(count)

    async def play(crew: Crew) -> None:
        await asyncio.gather(*(crew.run(lambda: meeting.wait(10)) for _ in range(count)))
        names = set(await asyncio.gather(*(crew.run(lambda: threading.current_thread().name) for _ in range(50))))
        assert names <= {f"crew_{number}" for number in range(count)}

    with_crew(count, play)


def test_calls_one_after_the_other_take_few_threads() -> None:
    async def play(crew: Crew) -> None:
        names = set()
        for _ in range(50):
            names.add(await crew.run(lambda: threading.current_thread().name))
            await asyncio.sleep(0.002)
        assert len(names) < 4, "a thread that is free is taken, and no new one started"

    with_crew(8, play)


def test_calls_are_begun_in_the_order_they_came() -> None:
    begun: list[int] = []

    async def play(crew: Crew) -> None:
        await asyncio.gather(*(crew.run(partial(begun.append, number)) for number in range(100)))

    with_crew(1, play)
    assert begun == list(range(100))


def test_a_call_nobody_waits_for_any_more_is_not_made() -> None:
    made: list[int] = []
    gate = threading.Event()

    async def play(crew: Crew) -> None:
        first, second = crew.run(lambda: gate.wait(10)), crew.run(lambda: made.append(2))
        third = crew.run(lambda: made.append(3))
        second.cancel()
        gate.set()
        await asyncio.gather(first, third)

    with_crew(1, play)
    assert made == [3]


def test_a_result_nobody_waits_for_any_more_harms_nothing() -> None:
    gate = threading.Event()

    async def play(crew: Crew) -> None:
        left = crew.run(lambda: gate.wait(10))
        await asyncio.sleep(0.05)
        left.cancel()
        gate.set()
        assert await crew.run(lambda: 1) == 1

    with_crew(1, play)


def test_nothing_of_a_call_is_kept_once_it_is_over() -> None:
    async def play(crew: Crew) -> None:
        thing = Thing()
        watched = weakref.ref(thing)
        assert await crew.run(partial(isinstance, thing, Thing))
        del thing
        await crew.run(lambda: None)
        gc.collect()
        assert watched() is None

    with_crew(1, play)


def test_nothing_of_a_call_that_failed_waits_for_the_collector() -> None:
    def fail(thing: Thing) -> None:
        raise ValueError(f"no use of {type(thing).__name__}")

    async def play(crew: Crew) -> None:
        thing = Thing()
        watched = weakref.ref(thing)
        with contextlib.suppress(ValueError):
            await crew.run(partial(fail, thing))
        del thing
        await crew.run(lambda: None)
        assert watched() is None

    gc.collect()
    gc.disable()
    try:
        with_crew(1, play)
    finally:
        gc.enable()


def test_a_close_waits_for_what_there_is_and_takes_no_more() -> None:
    done: list[int] = []
    gate = threading.Event()

    def wait_and_note(number: int) -> None:
        gate.wait(10)
        done.append(number)

    async def play() -> None:
        crew = Crew(1, "crew")
        for number in range(3):
            crew.run(partial(wait_and_note, number))
        threading.Timer(0.05, gate.set).start()
        crew.close()
        assert done == [0, 1, 2]
        with pytest.raises(ClosedError):
            crew.run(lambda: None)

    asyncio.run(play())
