"""The planner against the oracle, and what must hold of every plan."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kvshelf_client.words import Provenance
from service.planner import fallback_plan, resume_plan, tokens_by_source, useful_snapshot_boundaries
from service.planner.base import Ability, Cached, Mode, ResumePlan, Snapshot
from tests.property.planner_oracle import Answer, best_answer
from tests.support.planning import Question, caches, engine_alone, questions


def plan_for(question: Question) -> ResumePlan:
    return resume_plan(question.layout, question.request, question.cached)


def flat(plan: ResumePlan) -> Answer:
    load = plan.load
    return Answer(
        plan.mode.value,
        plan.exact,
        plan.matched_tokens,
        plan.run_start,
        plan.held_tokens,
        load.global_start,
        load.global_end,
        load.snapshot_boundary,
        load.ssd_bytes,
        load.dram_bytes,
    )


@settings(max_examples=1000)
@given(questions())
def test_every_plan_is_the_one_the_oracle_finds(question: Question) -> None:
    assert flat(plan_for(question)) == best_answer(question.layout, question.request, question.cached)


@settings(max_examples=60)
@given(questions(max_prompt_tokens=1500))
def test_plans_for_long_prompts_are_the_ones_the_oracle_finds(question: Question) -> None:
    assert flat(plan_for(question)) == best_answer(question.layout, question.request, question.cached)


@given(questions())
def test_something_runs_and_the_decoder_has_its_window(question: Question) -> None:
    plan, layout = plan_for(question), question.layout
    length = question.request.prompt_tokens
    assert 0 <= plan.run_start <= plan.matched_tokens < length
    assert plan.run_start <= plan.decoder_run_start <= length
    assert plan.decoder_run_start == 0 or length - plan.decoder_run_start == layout.decoder_window_tokens
    assert (plan.run_start == 0) == (plan.mode is Mode.COLD)


@given(questions())
def test_sources_add_up_to_the_prompt(question: Question) -> None:
    plan = plan_for(question)
    sources = tokens_by_source(plan, question.layout)
    assert sum(sources.values()) == question.request.prompt_tokens
    assert all(tokens >= 0 for tokens in sources.values())
    assert sum(list(sources.values())[:3]) == plan.saved_tokens


@given(questions())
def test_a_plan_never_runs_more_than_the_engine_alone(question: Question) -> None:
    assert plan_for(question).run_start >= engine_alone(question.layout, question.request)


@given(questions())
def test_a_plan_loads_nothing_it_does_not_need(question: Question) -> None:
    plan, layout = plan_for(question), question.layout
    load = plan.load
    assert load.global_end == plan.matched_tokens
    assert (load.snapshot_boundary is not None) == (plan.mode is Mode.SNAPSHOT)
    assert load.dram_bytes == (layout.snapshot_bytes if plan.mode is Mode.SNAPSHOT else 0)
    if load.global_start == load.global_end:
        assert load.ssd_bytes == 0
        return
    assert plan.mode not in (Mode.RESIDENT, Mode.COLD)
    assert layout.block_bytes > 0
    assert load.global_start % layout.block_tokens == load.global_end % layout.block_tokens == 0
    assert load.global_start + layout.block_tokens > plan.held_tokens, "the first block loaded is held whole"
    assert load.ssd_bytes * layout.block_tokens == (load.global_end - load.global_start) * layout.block_bytes


@given(questions())
def test_exact_is_never_claimed_on_anything_replayed(question: Question) -> None:
    plan, request, cached, layout = plan_for(question), question.request, question.cached, question.layout
    if not plan.exact:
        assert request.allow_approximate
        return
    assert plan.mode is not Mode.BOUNDED_REPLAY
    assert plan.held_tokens == request.hbm_exact_tokens
    if plan.load.global_start < plan.load.global_end:
        assert plan.load.global_end <= cached.exact_global_tokens
    if plan.mode is Mode.RESIDENT:
        assert plan.matched_tokens <= request.hbm_exact_tokens
    if plan.mode is Mode.SNAPSHOT:
        assert Snapshot(plan.matched_tokens, Provenance.EXACT) in cached.snapshots
    if plan.mode is Mode.EXACT_REBUILD:
        assert plan.replayed_tokens >= layout.window_tokens + (layout.state_layers - 1) * (layout.window_tokens - 1)


@st.composite
def grown(draw: st.DrawFn, question: Question) -> Cached:
    """The cache of a question with more in it: G, G_exact and snapshots, each maybe."""
    cached, layout, request = question.cached, question.layout, question.request
    more = draw(caches(layout, request))
    kept = tuple(snapshot._replace(provenance=Provenance.EXACT) for snapshot in cached.snapshots)
    return Cached(
        global_tokens=max(cached.global_tokens, more.global_tokens),
        exact_global_tokens=max(cached.exact_global_tokens, more.exact_global_tokens),
        snapshots=draw(st.sampled_from([cached.snapshots, kept])) + more.snapshots,
    )


@given(st.data())
def test_more_cache_never_means_more_tokens_run(data: st.DataObject) -> None:
    question = data.draw(questions())
    richer = data.draw(grown(question))
    assert resume_plan(question.layout, question.request, richer).run_start >= plan_for(question).run_start


@given(st.data())
def test_an_engine_that_holds_more_never_runs_more(data: st.DataObject) -> None:
    """Only without its own state: that is of use at the very end of what is held, and nowhere else."""
    question = data.draw(questions())
    request = replace(question.request, hbm_state=False)
    held = data.draw(st.integers(request.hbm_tokens, request.prompt_tokens))
    more = replace(request, hbm_tokens=held, hbm_exact_tokens=data.draw(st.integers(request.hbm_exact_tokens, held)))
    before = resume_plan(question.layout, request, question.cached)
    assert resume_plan(question.layout, more, question.cached).run_start >= before.run_start


@given(questions())
def test_an_engine_that_can_and_accepts_more_never_runs_more(question: Question) -> None:
    able = replace(question.request, supports=frozenset(Ability), allow_approximate=True)
    assert resume_plan(question.layout, able, question.cached).run_start >= plan_for(question).run_start


@given(questions())
def test_the_fallback_needs_no_snapshot_and_saves_no_more(question: Question) -> None:
    plan, fallback = plan_for(question), fallback_plan(question.layout, question.request, question.cached)
    assert fallback.load.snapshot_boundary is None
    assert fallback.run_start <= plan.run_start
    if plan.mode is not Mode.SNAPSHOT:
        assert fallback == plan


@settings(max_examples=500)
@given(questions())
def test_snapshots_that_are_not_looked_up_change_nothing(question: Question) -> None:
    useful = useful_snapshot_boundaries(question.layout, question.request, question.cached)
    looked_up = tuple(s for s in question.cached.snapshots if s.boundary_tokens in useful)
    lazily = resume_plan(question.layout, question.request, replace(question.cached, snapshots=looked_up))
    assert lazily == plan_for(question)


@settings(max_examples=300)
@given(questions())
def test_without_a_limit_a_snapshot_is_used_at_every_useful_boundary_and_nowhere_else(question: Question) -> None:
    layout, request = question.layout, replace(question.request, max_load_bytes_per_saved_token=None)
    useful = useful_snapshot_boundaries(layout, request, question.cached)
    for boundary in range(layout.block_tokens, request.prompt_tokens + 1, layout.block_tokens):
        alone = replace(question.cached, snapshots=(Snapshot(boundary, Provenance.EXACT),))
        is_used = resume_plan(layout, request, alone).mode is Mode.SNAPSHOT
        assert is_used == (boundary in useful)
