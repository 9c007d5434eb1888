"""Larger blocks: two prompts share one exactly when they share all of the smaller ones up to its end."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.traces.base import TraceError, TraceRequest, runs_of
from service.traces.generate import sample_path
from service.traces.reader import read_trace
from service.traces.regroup import regroup
from tests.support.traces import BLOCK, request, trace_of
from tests.support.trie import Trie

_PROMPTS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.lists(st.integers(0, 2), max_size=14), st.integers(0, 63)),
    min_size=1,
    max_size=10,
)


@given(_PROMPTS, st.integers(1, 5), st.booleans())
def test_what_is_shared(prompts: list[tuple[str, list[int], int]], factor: int, is_shared: bool) -> None:
    made = []
    for session, ids, rest in prompts:
        one = replace(request(ids, session=session, rest=rest or 1), runs=tuple(runs_of(ids)))
        made.append(replace(one, scope=None) if is_shared else one)
    trace = trace_of(made)
    larger = regroup(trace, BLOCK * factor)
    assert larger.block_tokens == BLOCK * factor
    tries: dict[tuple[bool, str | None], Trie] = {}
    names = dict[tuple[object, ...], set[tuple[int, ...]]]()
    for before, after in zip(trace.requests, larger.requests, strict=True):
        assert (after.input_tokens, after.session, after.scope) == (before.input_tokens, before.session, before.scope)
        assert len(list(after.block_ids())) == after.full_blocks == before.full_blocks // factor
        groups = _groups(before, factor)
        known, found = (
            tries.setdefault((is_larger, before.scope), Trie()).insert(ids)
            for is_larger, ids in ((False, groups), (True, list(after.block_ids())))
        )
        assert known == found
        for number, block in enumerate(after.block_ids()):
            names.setdefault((before.scope, block), set()).add(tuple(groups[: number + 1]))
    if factor > 1:
        assert all(len(prefixes) == 1 for prefixes in names.values()), "a name stands for one prefix"


def _groups(one: TraceRequest, factor: int) -> list[int]:
    """A number for each larger block, made of the ids in it."""
    ids = list(one.block_ids())
    return [
        sum(block_id * 10**place for place, block_id in enumerate(ids[start : start + factor]))
        for start in range(0, len(ids) - factor + 1, factor)
    ]


def test_a_long_run_stays_one() -> None:
    one = request([], session="a")
    long = replace(one, input_tokens=6_400_001, runs=tuple(runs_of(range(7, 100_007))))
    assert [run.length for run in regroup(trace_of([long]), 256).requests[0].runs] == [25_000]


def test_the_same_size_is_the_same_trace() -> None:
    trace = read_trace(sample_path())
    assert regroup(trace, 64) is trace
    assert regroup(regroup(trace, 128), 256).requests[-1].full_blocks == trace.requests[-1].input_tokens // 256


@pytest.mark.parametrize("block_tokens", [1, 32, 63, 65, 96])
def test_sizes_that_do_not_fit(block_tokens: int) -> None:
    with pytest.raises(TraceError, match="cannot be put together"):
        regroup(read_trace(sample_path()), block_tokens)
