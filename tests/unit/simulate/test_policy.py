"""Snapshot policies, and which blocks a finished turn is made of."""

from dataclasses import replace

import pytest

from service.simulate.policy import LAST_BLOCK, NONE, PROMPT_AND_TURN, SnapshotPolicy, Turns, policy_named
from service.traces.base import Run, TraceRequest
from tests.support.traces import BLOCK, request, trace_of


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("last-block", LAST_BLOCK),
        ("prompt-and-turn", PROMPT_AND_TURN),
        ("none", NONE),
        ("every-1", SnapshotPolicy(every_blocks=1)),
        ("every-16", SnapshotPolicy(every_blocks=16)),
    ],
)
def test_names(name: str, policy: SnapshotPolicy) -> None:
    assert policy_named(name) == policy


@pytest.mark.parametrize("name", ["", "every-0", "every-", "every--1", "every-1.5", "every-٣", "last", "every-16 "])
def test_no_names(name: str) -> None:
    with pytest.raises(ValueError, match=r"last-block, prompt-and-turn, every-N \(blocks\) or none"):
        policy_named(name)


@pytest.mark.parametrize(
    ("policy", "floor", "blocks", "expected"),
    [
        (LAST_BLOCK, 3, 9, [9]),
        (LAST_BLOCK, 9, 9, [9]),
        (LAST_BLOCK, 10, 9, []),
        (LAST_BLOCK, 0, 0, []),
        (PROMPT_AND_TURN, 0, 9, [9]),
        (NONE, 0, 9, []),
        (SnapshotPolicy(every_blocks=4), 0, 9, [4, 8]),
        (SnapshotPolicy(every_blocks=4), 4, 9, [4, 8]),
        (SnapshotPolicy(every_blocks=4), 5, 8, [8]),
        (SnapshotPolicy(every_blocks=4), 5, 7, []),
        (SnapshotPolicy(every_blocks=1), 2, 4, [2, 3, 4]),
        (SnapshotPolicy(every_blocks=1), 0, 2, [1, 2]),
    ],
)
def test_boundaries(policy: SnapshotPolicy, floor: int, blocks: int, expected: list[int]) -> None:
    assert list(policy.boundaries(floor, blocks)) == expected


def _turn(first_ids: list[int], next_ids: list[int] | None, *, answer: int, agent: str | None = None) -> list[int]:
    """The ids of the first request's finished turn; one made up is -1. The prompt ends a token behind its blocks."""
    made = [_answering(first_ids, answer, agent)]
    if next_ids is not None:
        made.append(request(next_ids, time=5.0, agent=agent))
    made.insert(1, request([77, 78], time=1.0, agent="other"))
    found: list[int] = []
    for run in Turns(trace_of(made)).runs(0):
        found += [run.first_id + n if run.first_id >= 0 else -1 for n in range(run.length)]
    return found


def _answering(ids: list[int], answer: int, agent: str | None) -> TraceRequest:
    return replace(request(ids, agent=agent), output_tokens=answer)


@pytest.mark.parametrize("agent", [None, "x"])
def test_the_next_prompt_tells_what_the_answer_was(agent: str | None) -> None:
    assert _turn([1, 2], [1, 2, 3, 4, 5], answer=2 * BLOCK, agent=agent) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("next_ids", "why"),
    [
        ([1, 2, 3], "it is too short to hold the answer"),
        ([1, 9, 3, 4, 5], "it goes on from somewhere else"),
        ([], "it was compacted away"),
        (None, "there is none"),
    ],
)
def test_an_answer_that_nobody_goes_on_from(next_ids: list[int] | None, why: str) -> None:
    assert _turn([1, 2], next_ids, answer=2 * BLOCK) == [1, 2, -1, -1], why


@pytest.mark.parametrize(("answer", "filled"), [(0, 0), (BLOCK - 2, 0), (BLOCK - 1, 1), (2 * BLOCK - 2, 1)])
def test_only_blocks_that_are_full_count(answer: int, filled: int) -> None:
    assert _turn([1, 2], None, answer=answer) == [1, 2] + [-1] * filled


def test_made_up_ids_are_never_the_same() -> None:
    trace = trace_of([_answering([1], 5000, None) for _ in range(3)])
    turns = Turns(trace)
    ids = {id_ for n in range(3) for run in turns.runs(n)[1:] for id_ in range(run.first_id, run.first_id + run.length)}
    assert len(ids) == 3 * (5000 // BLOCK)
    assert max(ids) < 0
    assert turns.runs(0)[0] == Run(1, 1)


def test_without_sessions_nothing_goes_on() -> None:
    trace = trace_of([request([1, 2], session=None), request([1, 2, 3, 4], session=None)])
    assert Turns(trace).runs(0) == (Run(1, 1), Run(2, 1))
