"""What may be run once some loads have failed: no more than what is there supports, as the planner would say."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvshelf_client.answers import Lease, Load, PlanAnswer, Resume
from kvshelf_client.hashing import bind_hashes
from kvshelf_client.plans import Slot, cold, keys_of, plan_of
from kvshelf_client.requests import AskPlan
from kvshelf_client.words import RecordClass
from service.planner import fallback_plan, resume_plan, tokens_by_source
from service.planner.base import Ability, Cached, Layout, Mode, ResumePlan
from tests.support.planning import Question, questions
from tests.support.wire import KEYS, NAMESPACE, plan_for, resume, snapshot_answer

LEASE = Lease("l1", 60.0, 4)


def answer_of(plan: ResumePlan, layout: Layout, plan_id: str) -> Resume:
    """A plan of the planner as a client gets it."""
    return Resume(
        plan_id,
        plan.mode.value,
        plan.exact,
        plan.prompt_tokens,
        plan.matched_tokens,
        plan.run_start,
        plan.write_floor,
        plan.decoder_run_start,
        plan.replayed_tokens,
        plan.saved_tokens,
        plan.held_tokens,
        Load(*plan.load),
        {source.value: tokens for source, tokens in tokens_by_source(plan, layout).items()},
    )


def plans_of(question: Question) -> tuple[ResumePlan, ResumePlan]:
    """The planner's plan and its fallback."""
    asked = question.layout, question.request, question.cached
    return resume_plan(*asked), fallback_plan(*asked)


def settled(question: Question, *, has_snapshot: bool, verified_tokens: int) -> tuple[Resume, Resume, Resume]:
    """What a client makes of it: the plan, the fallback, and what is left of them."""
    layout = question.layout
    namespace = NAMESPACE._replace(
        block_tokens=layout.block_tokens,
        block_bytes=layout.block_bytes,
        decoder_window_tokens=layout.decoder_window_tokens,
    )
    first, second = (answer_of(plan, layout, name) for plan, name in zip(plans_of(question), ("p", "f"), strict=True))
    uses_snapshot = first.load.snapshot_boundary is not None
    answer = PlanAnswer("r", first, second if uses_snapshot else None, LEASE, 0, 0, None, None)
    plan = plan_of(namespace, AskPlan("n", question.request.prompt_tokens, "r", b""), answer)
    return first, second, plan.settle(has_snapshot=has_snapshot, verified_tokens=verified_tokens)


@settings(max_examples=200)
@given(questions(), st.data())
def test_what_is_left_of_a_plan_stands_on_what_is_there(question: Question, data: st.DataObject) -> None:
    first, _ = plans_of(question)
    load, size = first.load, question.layout.block_tokens
    blocks = (load.global_end - load.global_start) // size
    verified = load.global_start + size * data.draw(st.integers(0, blocks))
    has_snapshot = data.draw(st.booleans())
    primary, fallback, left = settled(question, has_snapshot=has_snapshot, verified_tokens=verified)

    verified = verified if question.layout.block_bytes else question.request.prompt_tokens
    is_whole = verified >= load.global_end and (has_snapshot or load.snapshot_boundary is None)
    assert (left is primary) == is_whole
    if left.plan_id is None:
        assert left.matched_tokens <= verified
    assert left.exact <= (primary.exact or left is fallback or left.mode == "cold")
    assert left.load.snapshot_boundary is None or left is primary
    assert sum(left.tokens_by_source.values()) == left.prompt_tokens
    assert min(left.tokens_by_source.values()) >= 0
    assert left.decoder_run_start == primary.decoder_run_start
    assert left.run_start <= left.matched_tokens == left.write_floor == left.load.global_end
    assert (left.mode == "cold") == (left.run_start == 0)


_ABILITIES = {"bounded_replay": {Ability.BOUNDED_REPLAY}, "exact_rebuild": {Ability.EXACT_REBUILD}}


@settings(max_examples=200)
@given(questions(), st.data())
def test_a_shortened_plan_is_the_planners_for_so_much_cache(question: Question, data: st.DataObject) -> None:
    """Asked for the same way to resume, with no more than what arrived in its cache, the planner answers the same."""
    first, _ = plans_of(question)
    load, size = first.load, question.layout.block_tokens
    verified = load.global_start + size * data.draw(st.integers(0, (load.global_end - load.global_start) // size))
    _, _, left = settled(question, has_snapshot=False, verified_tokens=verified)
    if left.plan_id is not None or left.mode == "cold":
        return
    request = replace(
        question.request,
        supports=frozenset(_ABILITIES.get(left.mode, ())),
        hbm_tokens=left.held_tokens,
        hbm_exact_tokens=left.held_tokens if left.exact else 0,
        hbm_state=False,
        max_load_bytes_per_saved_token=None,
    )
    exact = verified if left.exact else 0
    again = resume_plan(question.layout, request, Cached(verified, exact))
    if again.mode is Mode.RESIDENT:
        return  # Nothing but what is held is left, and without state layers the engine needs no block boundary.
    assert answer_of(again, question.layout, "p")._replace(plan_id=None) == left


def test_worked_case_of_the_bounded_replay() -> None:
    plan = plan_for(PlanAnswer("r", resume(blocks=6), None, LEASE, 0, 0, None, None))
    left = plan.settle(has_snapshot=False, verified_tokens=4 * 64)
    assert (left.mode, left.matched_tokens, left.run_start, left.write_floor) == ("bounded_replay", 256, 192, 256)
    assert left.tokens_by_source == {"hbm": 0, "dram": 0, "ssd": 192, "replay": 64, "prefill": 744}


def test_ranks_agree_on_the_least() -> None:
    """One rank has all, another lost a block: both must run what both can."""
    plan = plan_for(snapshot_answer())
    assert plan.settle(has_snapshot=True, verified_tokens=min(256, 192)).matched_tokens == 192
    assert plan.settle(has_snapshot=False, verified_tokens=256) is plan.fallback


def test_a_snapshot_plan_without_a_fallback_is_cold_without_its_snapshot() -> None:
    plan = plan_for(snapshot_answer()._replace(fallback=None))
    assert plan.settle(has_snapshot=False, verified_tokens=256) == cold(NAMESPACE, 1000)


def test_slots_in_the_order_of_arrival() -> None:
    plan = plan_for(snapshot_answer(blocks=2), NAMESPACE._replace(shards=2))
    block, snapshot = RecordClass.BLOCK, RecordClass.SNAPSHOT
    assert plan.slots(plan.resume) == [
        Slot(snapshot, 128, 0), Slot(snapshot, 128, 1),
        Slot(block, 64, 0), Slot(block, 128, 0), Slot(block, 64, 1), Slot(block, 128, 1),
    ]  # fmt: skip
    assert plan.slots(plan.resume, shard=1) == [Slot(snapshot, 128, 1), Slot(block, 64, 1), Slot(block, 128, 1)]


@pytest.mark.parametrize("hashes_per_block", [1, 2])
def test_keys_from_whatever_a_plan_was_asked_by(hashes_per_block: int) -> None:
    hashes = b"".join(KEYS)
    by_hashes = AskPlan("n", 1000, "r", None, hashes)
    assert keys_of(NAMESPACE, by_hashes) == KEYS
    foreign = NAMESPACE._replace(hash_scheme="engine", hashes_per_block=hashes_per_block)
    assert keys_of(foreign, by_hashes) == bind_hashes(NAMESPACE.fingerprint, KEYS, hashes_per_block)
