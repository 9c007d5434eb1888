"""What a store may claim after a run."""

import itertools

import pytest

from kvshelf_client.words import Provenance, RecordClass
from service.planner import Ran, Refusal, judge_store, request_for, resume_plan
from service.planner.base import Cached
from tests.support.planning import GPT_OSS, LLAMA, V41

EXACT, REPLAYED = Provenance.EXACT, Provenance.REPLAYED
BLOCK, SNAPSHOT = RecordClass.BLOCK, RecordClass.SNAPSHOT
REFUSED = Refusal.BELOW_WRITE_FLOOR

LOADED_EXACTLY = Ran(write_floor=768, exact=True, held_tokens=300, held_exact_tokens=200)
REPLAYED_WINDOW = LOADED_EXACTLY._replace(exact=False)


@pytest.mark.parametrize(
    ("end_tokens", "after_exact", "after_replay"),
    [
        (128, EXACT, EXACT),
        (256, REPLAYED, REPLAYED),
        (384, REFUSED, REFUSED),
        (768, REFUSED, REFUSED),
        (896, EXACT, REPLAYED),
        (2048, EXACT, REPLAYED),
    ],
)
def test_a_block_is_stored_if_it_was_held_whole_or_computed(
    end_tokens: int, after_exact: Provenance | Refusal, after_replay: Provenance | Refusal
) -> None:
    """Held below 300 and exact below 200, loaded up to 768, computed from there."""
    assert judge_store(V41, LOADED_EXACTLY, BLOCK, end_tokens, EXACT) == after_exact
    assert judge_store(V41, REPLAYED_WINDOW, BLOCK, end_tokens, EXACT) == after_replay


@pytest.mark.parametrize(
    ("boundary", "after_exact", "after_replay"),
    [(128, REFUSED, REFUSED), (640, REFUSED, REFUSED), (768, EXACT, REPLAYED), (896, EXACT, REPLAYED)],
)
def test_a_snapshot_is_stored_from_the_write_floor_on(
    boundary: int, after_exact: Provenance | Refusal, after_replay: Provenance | Refusal
) -> None:
    """What is held below is global KV: the state there is gone."""
    assert judge_store(V41, LOADED_EXACTLY, SNAPSHOT, boundary, EXACT) == after_exact
    assert judge_store(V41, REPLAYED_WINDOW, SNAPSHOT, boundary, EXACT) == after_replay


@pytest.mark.parametrize("record_class", RecordClass)
def test_a_claim_is_never_raised(record_class: RecordClass) -> None:
    for ran in (None, LOADED_EXACTLY, REPLAYED_WINDOW):
        assert judge_store(GPT_OSS, ran, record_class, 896, REPLAYED) == REPLAYED


@pytest.mark.parametrize("record_class", RecordClass)
def test_a_store_that_names_no_plan_is_replayed_where_that_can_be(record_class: RecordClass) -> None:
    assert judge_store(V41, None, record_class, 128, EXACT) == REPLAYED
    for layout in (LLAMA, GPT_OSS):
        assert judge_store(layout, None, record_class, 128, EXACT) == EXACT


@pytest.mark.parametrize("record_class", RecordClass)
@pytest.mark.parametrize("end_tokens", [-128, 0, 1, 127, 129])
def test_what_ends_at_no_boundary_is_refused(record_class: RecordClass, end_tokens: int) -> None:
    for ran in (None, LOADED_EXACTLY):
        assert judge_store(V41, ran, record_class, end_tokens, EXACT) == Refusal.NO_BOUNDARY


def test_what_a_replay_computed_again_is_replayed_though_the_engine_held_it_exactly() -> None:
    """The engine held 1,000 exact tokens; the run replayed up to 768 and then wrote its own over the rest."""
    ran = Ran(write_floor=768, exact=False, held_tokens=1000, held_exact_tokens=1000)
    assert judge_store(V41, ran, BLOCK, 768, EXACT) == EXACT
    assert judge_store(V41, ran, BLOCK, 896, EXACT) == REPLAYED


def test_what_an_exact_run_computed_is_exact_though_the_engine_held_it_replayed() -> None:
    ran = Ran(write_floor=0, exact=True, held_tokens=1000, held_exact_tokens=0)
    assert judge_store(V41, ran, BLOCK, 896, EXACT) == EXACT


def test_an_unaligned_resident_run_leaves_no_hole() -> None:
    """The block from 896 to 1,024 was half held and half computed: its end counts, not its start."""
    request = request_for(LLAMA, 2000, hbm_tokens=992)
    ran = Ran.of(resume_plan(LLAMA, request, Cached(896, 896)), request)
    assert ran == Ran(write_floor=992, exact=True, held_tokens=992, held_exact_tokens=992)
    assert [judge_store(LLAMA, ran, BLOCK, end, EXACT) for end in (896, 1024)] == [EXACT, EXACT]


def test_the_facts_are_those_of_the_request_too() -> None:
    request = request_for(V41, 1000, hbm_tokens=300, hbm_exact_tokens=200)
    assert Ran.of(resume_plan(V41, request, Cached(896, 896)), request) == REPLAYED_WINDOW


ENDS = range(128, 8 * 128 + 1, 128)


def worse(one: Provenance | Refusal, other: Provenance | Refusal) -> Provenance | Refusal:
    """A refusal if either is one, else the lower provenance."""
    if isinstance(one, Refusal):
        return one
    return other if isinstance(other, Refusal) else min(one, other)


@pytest.mark.parametrize("record_class", RecordClass)
def test_when_either_of_two_plans_may_have_run_both_must_allow_what_is_stored(record_class: RecordClass) -> None:
    """One of the plans computes between the floors what the other leaves as the engine held it."""
    for held, exactly in [(0, 0), (500, 0), (500, 300), (500, 500), (900, 700)]:
        plans = [Ran(floor, exact, held, exactly) for floor in (0, 256, 384, 768) for exact in (False, True)]
        for one, other in itertools.product(plans, plans):
            both = one.either(other)
            for end in ENDS:
                expected = worse(
                    judge_store(V41, one, record_class, end, EXACT), judge_store(V41, other, record_class, end, EXACT)
                )
                assert judge_store(V41, both, record_class, end, EXACT) == expected, (one, other, end)


def test_a_block_that_one_plan_has_replayed_over_is_not_exact_for_having_been_held() -> None:
    snapshot = Ran(write_floor=256, exact=False, held_tokens=400, held_exact_tokens=400)
    replay = snapshot._replace(write_floor=384)
    assert judge_store(V41, snapshot, BLOCK, 384, EXACT) == REPLAYED
    assert judge_store(V41, replay, BLOCK, 384, EXACT) == EXACT
    assert judge_store(V41, snapshot.either(replay), BLOCK, 384, EXACT) == REPLAYED
    assert judge_store(V41, snapshot.either(replay), BLOCK, 256, EXACT) == EXACT
