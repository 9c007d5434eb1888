"""Whose turn it is: lines one after the other, sub-agents side by side, so many sessions at once."""

from service.replay.schedule import Schedule, Step
from service.traces.base import Trace, TraceRequest
from tests.support.traces import request, trace_of


def _by(session: str | None, agent: str | None, time: float) -> TraceRequest:
    return request([1], session=session, agent=agent, time=time)


def taken(schedule: Schedule) -> list[Step]:
    """All that may start now."""
    found = []
    while (step := schedule.take()) is not None:
        found.append(step)
    return found


def numbers(steps: list[Step]) -> list[int]:
    return [step.number for step in steps]


def one_by_one(trace: Trace) -> list[int]:
    schedule, order = Schedule(trace), []
    while (step := schedule.take()) is not None:
        order.append(step.number)
        schedule.finish(step)
    return order


_AGENTS = trace_of(
    [
        _by("s", None, 0),
        _by("s", "a", 1),
        _by("s", "b", 2),
        _by("s", "a", 3),
        _by("s", None, 4),
        _by("s", "b", 5),
        _by("s", None, 6),
    ]
)


def test_sub_agents_run_side_by_side_and_are_waited_for() -> None:
    """The main line's second request does not wait for b, whose last one is later; its third one does."""
    schedule = Schedule(_AGENTS)
    (first,) = taken(schedule)
    schedule.finish(first)
    a, b = taken(schedule)
    assert numbers([a, b]) == [1, 2]
    schedule.finish(b)
    (later_b,) = taken(schedule)
    assert later_b.number == 5
    schedule.finish(a)
    (last_a,) = taken(schedule)
    assert last_a.number == 3
    schedule.finish(last_a)
    (main,) = taken(schedule)
    assert main.number == 4
    assert not schedule.finish(main)
    assert taken(schedule) == []
    schedule.finish(later_b)
    (end,) = taken(schedule)
    assert end.number == 6
    assert schedule.finish(end), "the session is over"


def test_one_at_a_time_is_the_order_of_the_trace() -> None:
    trace = trace_of([_by(name, None, time) for time, name in enumerate("abacbca")])
    assert one_by_one(trace) == list(range(7))


def test_requests_without_sessions_wait_for_nobody() -> None:
    schedule = Schedule(trace_of([_by(None, None, time) for time in range(5)]), sessions_at_once=3)
    steps = taken(schedule)
    assert numbers(steps) == [0, 1, 2]
    schedule.finish(steps[1])
    assert numbers(taken(schedule)) == [3]


def test_so_many_sessions_at_once() -> None:
    schedule = Schedule(trace_of([_by(name, None, time) for time, name in enumerate("aabc")]), sessions_at_once=2)
    a, b = taken(schedule)
    assert numbers([a, b]) == [0, 2]
    schedule.finish(a)
    (second,) = taken(schedule)
    assert second.number == 1
    schedule.finish(second)
    assert numbers(taken(schedule)) == [3]


def test_an_endless_trace_begins_anew_as_other_sessions() -> None:
    trace = trace_of([_by("a", None, 0), _by("b", None, 3)])
    schedule = Schedule(trace, is_endless=True)
    seen = []
    for _ in range(5):
        step = schedule.take()
        assert step is not None
        schedule.finish(step)
        seen.append(step.request)
    assert [one.time_seconds for one in seen] == [0, 3, 3, 6, 6]
    assert len({one.session for one in seen}) == len({(one.session, one.scope) for one in seen}) == 5
