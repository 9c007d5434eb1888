"""Places of prompts: shared exactly as far as the prompts share their ids, however runs are cut and nodes grow."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.traces.base import Run, runs_of
from service.traces.prefixes import FAMILY_BITS, PrefixTree, Span, blocks_in, cut_spans, place_of
from tests.support.trie import Trie

_IDS = st.lists(st.integers(0, 3), max_size=12)


def places(spans: list[Span]) -> list[int]:
    return [place for span in spans for place in range(span.first, span.end)]


@given(st.lists(st.tuples(_IDS, st.integers(0, 12)), max_size=12))
def test_two_prompts_share_places_exactly_where_they_share_a_prefix(prompts: list[tuple[list[int], int]]) -> None:
    tree, trie, seen = PrefixTree(), Trie(), set[int]()
    for ids, cut in prompts:
        spans = tree.path(None, runs_of(ids[:cut]) + runs_of(ids[cut:]))
        path = places(spans)
        assert len(path) == len(ids) == blocks_in(spans)
        known = trie.insert(ids)
        assert seen.issuperset(path[:known])
        assert seen.isdisjoint(path[known:])
        seen.update(path)
        assert path == sorted(set(path)), "places rise along a path"
        assert all(span.first >> FAMILY_BITS == (span.end - 1) >> FAMILY_BITS for span in spans)
    for ids, _ in prompts:
        assert seen.issuperset(places(tree.path(None, runs_of(ids)))), "and stay what they are"


@given(_IDS, st.integers(0, 13), st.integers(0, 13))
def test_cutting_a_path(ids: list[int], start: int, end: int) -> None:
    path = PrefixTree().path(None, runs_of(ids))
    assert places(cut_spans(path, start, end)) == places(path)[start:end]
    for block in range(len(ids)):
        assert place_of(path, block) == places(path)[block]


def test_scopes_share_nothing_and_can_be_forgotten() -> None:
    tree = PrefixTree()
    one, other = tree.path("a", [Run(1, 5)]), tree.path("b", [Run(1, 5)])
    assert set(places(one)).isdisjoint(places(other))
    assert tree.path("a", [Run(1, 5)]) == one
    tree.forget("a")
    assert set(places(tree.path("a", [Run(1, 5)]))).isdisjoint(places(one) + places(other))
    tree.forget("never seen")


@pytest.mark.parametrize("turns", [1, 10, 1000])
def test_a_session_that_only_grows_stays_one_span(turns: int) -> None:
    tree = PrefixTree()
    for length in accumulate([1000] * turns):
        path = tree.path("a", [Run(1, length)])
        assert path == [Span(path[0].first, length)]


def test_a_fork_costs_a_span_and_not_its_blocks() -> None:
    tree = PrefixTree()
    tree.path("a", [Run(1, 10_000_000)])
    fork = tree.path("a", [Run(1, 5_000_000), Run(20_000_000, 7)])
    assert [span.length for span in fork] == [5_000_000, 7]
    assert [span.length for span in tree.path("a", [Run(1, 10_000_000)])] == [5_000_000, 5_000_000]
