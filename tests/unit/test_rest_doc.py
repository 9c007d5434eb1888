"""What docs/rest.md tells an engine of plans and words is what the planner does and the code says."""

import re
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from kvshelf_client.words import MissReason, Provenance, RecordClass
from service.planner import Ran, Refusal, judge_store, request_for, resume_plan
from service.planner.base import Ability, Cached, Layout, Mode, Replay, Request, ResumePlan, Snapshot
from service.rest.models import OutcomeAnswer
from service.shelf.storing import _OUTCOMES

TEXT = (Path(__file__).parents[2] / "docs/rest.md").read_text()
BOUNDED = Layout(128, 1000, 5000, 128, 3, Replay.BOUNDED, decoder_window_tokens=128)
FULL = Layout(128, 1000, 0, 0, 0, Replay.NONE)
EVERYTHING = frozenset(Ability)


def section(title: str) -> str:
    """The text below a heading."""
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def plans(layout: Layout) -> list[tuple[Request, ResumePlan]]:
    """The answers to all sorts of questions."""
    found = []
    for held, exact, state, approximate, stored, boundary, abilities in product(
        (0, 300, 900), (0, 300, 900), (False, True), (False, True), (0, 512, 1024), (None, 512, 1024),
        (EVERYTHING, frozenset({Ability.BOUNDED_REPLAY}), frozenset({Ability.EXACT_REBUILD})),
    ):  # fmt: skip
        if exact > held:
            continue
        request = Request(1100, approximate, abilities, held, exact, state)
        snapshots = () if boundary is None else (Snapshot(boundary, Provenance.EXACT),)
        for good in {0, stored}:
            found.append(
                (request, resume_plan(layout, request, Cached(max(stored, held // 128 * 128), good, snapshots)))
            )
    return found


ANSWERS = [(layout, request, plan) for layout in (BOUNDED, FULL) for request, plan in plans(layout)]


def test_every_mode_is_in_the_table_and_was_asked_for() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \| [^|]+\| [^|]+\| [^|]+\|$", section("What a plan asks of an engine"))
    assert rows == [mode.value for mode in Mode]
    assert {plan.mode for _, _, plan in ANSWERS} == set(Mode)


@pytest.mark.parametrize(
    ("mode", "replayed"),
    [
        (Mode.FULL_ATTENTION, 0), (Mode.RESIDENT, 0), (Mode.SNAPSHOT, 0), (Mode.COLD, 0),
        (Mode.BOUNDED_REPLAY, 128), (Mode.EXACT_REBUILD, 3 * 128),
    ],
)  # fmt: skip
def test_where_a_mode_runs_and_what_it_loads(mode: Mode, replayed: int) -> None:
    for layout, request, plan in ANSWERS:
        if plan.mode is not mode:
            continue
        assert plan.run_start == plan.write_floor - replayed
        assert plan.write_floor == plan.matched_tokens
        assert plan.load.snapshot_boundary == (plan.write_floor if mode is Mode.SNAPSHOT else None)
        start, end = plan.load.global_start, plan.load.global_end
        assert end == plan.write_floor
        assert start == end or mode not in (Mode.RESIDENT, Mode.COLD)
        assert start == end or start == plan.held_tokens // 128 * 128
        assert start < end or mode is Mode.COLD or plan.held_tokens >= plan.write_floor
        assert plan.held_tokens == (request.hbm_exact_tokens if plan.exact else request.hbm_tokens)
        assert plan.run_start <= plan.decoder_run_start == 1100 - layout.decoder_window_tokens
        assert mode is not Mode.COLD or (plan.exact and plan.write_floor == 0)
        assert mode is not Mode.BOUNDED_REPLAY or not plan.exact


def test_what_may_be_stored() -> None:
    """The table's four rows, for every plan and every boundary."""
    for layout, request, plan in ANSWERS:
        ran = Ran.of(plan, request)
        for end, kind in product(range(128, 1100, 128), RecordClass):
            above = end > plan.write_floor or (kind is RecordClass.SNAPSHOT and end == plan.write_floor)
            held = kind is RecordClass.BLOCK and end <= request.hbm_tokens
            is_exact = plan.exact if above else end <= request.hbm_exact_tokens
            kept = Provenance.EXACT if is_exact else Provenance.REPLAYED
            expected = kept if above or held else Refusal.BELOW_WRITE_FLOOR
            assert judge_store(layout, ran, kind, end, Provenance.EXACT) == expected, (plan, end, kind)


@pytest.mark.parametrize("held", [0, 300, 972])
@pytest.mark.parametrize("stored", [0, 1024])
def test_a_plan_that_supports_nothing_and_holds_nothing_is_cold(held: int, stored: int) -> None:
    cached = Cached(stored, stored, (Snapshot(512, Provenance.EXACT),) if stored else ())
    assert resume_plan(BOUNDED, request_for(BOUNDED, 1100, supports=()), cached).mode is Mode.COLD
    holding = request_for(BOUNDED, 1100, supports=(), hbm_tokens=held, hbm_state=True)
    assert resume_plan(BOUNDED, holding, cached).mode is (Mode.RESIDENT if held else Mode.COLD)


def words(text: str) -> set[str]:
    """All that stands in back ticks."""
    return set(re.findall(r"`([^`]+)`", text))


def test_every_word_of_an_outcome_is_there() -> None:
    (store,) = re.findall(r"(?ms)^\*\*Store\.\*\*.*?\n\n", TEXT)
    outcomes = set(get_args(OutcomeAnswer.model_fields["outcome"].annotation))
    reasons = {reason for _, reason in _OUTCOMES.values()} | {refusal.value for refusal in Refusal}
    assert outcomes | reasons | {"wrong_size", "wrong_class", "wrong_shard"} <= words(store)


def test_every_word_of_a_miss_is_there() -> None:
    (line,) = re.findall(r"(?m)^Words of a miss.*$", TEXT)
    assert words(line) == {reason.value for reason in MissReason}
