"""What the planner refuses to plan with, and the defaults it plans with."""

from dataclasses import replace

import pytest

from kvshelf_client.words import Provenance
from service.planner import InvalidRequestError, request_for, resume_plan
from service.planner.base import Ability, Cached, Layout, Request, Snapshot
from service.planner.validate import MAX_TOKENS
from tests.support.planning import GPT_OSS, LLAMA, MISTRAL, QWEN_NEXT, V41

GOOD = request_for(V41, 1000, hbm_tokens=500, hbm_exact_tokens=300)
THERE = Cached(896, 768)


def snapshot_at(boundary: int) -> Cached:
    return replace(THERE, snapshots=(Snapshot(128, Provenance.EXACT), Snapshot(boundary, Provenance.EXACT)))


@pytest.mark.parametrize(
    ("field", "request_", "cached"),
    [
        ("prompt_tokens", request_for(V41, 0), THERE),
        ("prompt_tokens", request_for(V41, -5), THERE),
        ("prompt_tokens", request_for(V41, MAX_TOKENS + 1), THERE),
        ("hbm_tokens", replace(GOOD, hbm_tokens=-1, hbm_exact_tokens=-1), THERE),
        ("hbm_tokens", replace(GOOD, hbm_tokens=1001), THERE),
        ("hbm_exact_tokens", replace(GOOD, hbm_exact_tokens=-1), THERE),
        ("hbm_exact_tokens", replace(GOOD, hbm_exact_tokens=501), THERE),
        ("max_load_bytes_per_saved_token", replace(GOOD, max_load_bytes_per_saved_token=-0.5), THERE),
        ("max_load_bytes_per_saved_token", replace(GOOD, max_load_bytes_per_saved_token=float("nan")), THERE),
        ("global_tokens", GOOD, Cached(-1, 0)),
        ("exact_global_tokens", GOOD, Cached(0, -1)),
        ("exact_global_tokens", GOOD, Cached(896, 897)),
        ("snapshots", GOOD, snapshot_at(0)),
        ("snapshots", GOOD, snapshot_at(-128)),
        ("snapshots", GOOD, snapshot_at(129)),
    ],
)
def test_the_error_names_the_field(field: str, request_: Request, cached: Cached) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        resume_plan(V41, request_, cached)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field} ")
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("request_", "cached"),
    [
        (GOOD, THERE),
        (request_for(V41, MAX_TOKENS), Cached(MAX_TOKENS, MAX_TOKENS)),
        (replace(GOOD, hbm_tokens=1000, hbm_exact_tokens=1000), THERE),
        (replace(GOOD, max_load_bytes_per_saved_token=0), THERE),
        (replace(GOOD, max_load_bytes_per_saved_token=float("inf")), THERE),
        (GOOD, Cached(0, 0)),
        (GOOD, Cached(5000, 5000)),
        (GOOD, snapshot_at(1280)),
    ],
)
def test_what_is_just_within_bounds_is_planned(request_: Request, cached: Cached) -> None:
    assert resume_plan(V41, request_, cached).prompt_tokens == request_.prompt_tokens


def test_what_is_held_is_counted_before_exact_and_all_are_compared() -> None:
    """The engine's 500 tokens make 384 of global KV, its 300 exact ones 256."""
    assert resume_plan(V41, GOOD, Cached(0, 384)).matched_tokens == 384
    with pytest.raises(InvalidRequestError, match="512 > 384"):
        resume_plan(V41, GOOD, Cached(0, 512))


def test_the_cache_of_a_layout_without_global_bytes_is_not_compared() -> None:
    assert resume_plan(MISTRAL, request_for(MISTRAL, 1000), Cached(0, 512)).run_start == 0


def test_where_replay_is_bounded_an_engine_takes_it_and_holds_nothing_exact() -> None:
    asked = request_for(V41, 1000, hbm_tokens=500)
    assert asked.supports == {Ability.SNAPSHOT, Ability.BOUNDED_REPLAY}
    assert asked.allow_approximate
    assert (asked.hbm_tokens, asked.hbm_exact_tokens) == (500, 0)


@pytest.mark.parametrize("layout", [LLAMA, GPT_OSS, QWEN_NEXT])
def test_elsewhere_an_engine_wants_exact_plans_and_holds_exact_kv(layout: Layout) -> None:
    asked = request_for(layout, 1000, hbm_tokens=500)
    assert asked.supports == {Ability.SNAPSHOT}
    assert not asked.allow_approximate
    assert (asked.hbm_tokens, asked.hbm_exact_tokens) == (500, 500)


def test_what_is_asked_for_is_no_default() -> None:
    asked = request_for(V41, 1000, allow_approximate=False, supports=[], hbm_tokens=5, hbm_exact_tokens=3)
    assert asked == Request(1000, False, frozenset(), 5, 3)
    assert request_for(LLAMA, 1000, allow_approximate=True, hbm_tokens=5, hbm_exact_tokens=0).hbm_exact_tokens == 0
