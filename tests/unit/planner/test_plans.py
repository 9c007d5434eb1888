"""Plans worked out by hand."""

from typing import Any

import pytest

from kvshelf_client.words import Provenance
from service.planner import fallback_plan, request_for, resume_plan, tokens_by_source, useful_snapshot_boundaries
from service.planner.base import Ability, Cached, Layout, Load, Mode, Replay, ResumePlan, Snapshot, Source
from tests.support.planning import EVERYTHING, GPT_OSS, LLAMA, MISTRAL, QWEN_NEXT, V41

V41_BLOCK_BYTES = 113_920
V41_SNAPSHOT_BYTES = 1_351_680


def exact(*boundaries: int) -> tuple[Snapshot, ...]:
    return tuple(Snapshot(boundary, Provenance.EXACT) for boundary in boundaries)


def replayed(*boundaries: int) -> tuple[Snapshot, ...]:
    return tuple(Snapshot(boundary, Provenance.REPLAYED) for boundary in boundaries)


def plan(
    layout: Layout,
    prompt_tokens: int,
    global_tokens: int,
    *snapshots: Snapshot,
    exact_global: int | None = None,
    **request: Any,
) -> ResumePlan:
    """The plan for a prompt with all its global KV exact, or ``exact_global`` of it; all supported by default."""
    asked = request_for(layout, prompt_tokens, **{"supports": EVERYTHING, **request})
    exact_tokens = global_tokens if exact_global is None else exact_global
    return resume_plan(layout, asked, Cached(global_tokens, exact_tokens, snapshots))


def cut(made: ResumePlan) -> tuple[Mode, int, int]:
    """Mode, run_start and matched_tokens."""
    return made.mode, made.run_start, made.matched_tokens


def loaded(made: ResumePlan) -> tuple[int, int]:
    return made.load.global_start, made.load.global_end


def test_an_exact_snapshot_at_the_last_boundary() -> None:
    made = plan(V41, 1000, 896, *exact(768))
    assert made == ResumePlan(
        mode=Mode.SNAPSHOT,
        exact=True,
        prompt_tokens=1000,
        matched_tokens=768,
        run_start=768,
        decoder_run_start=872,
        held_tokens=0,
        load=Load(0, 768, 768, 6 * V41_BLOCK_BYTES, V41_SNAPSHOT_BYTES),
    )
    assert (made.write_floor, made.replayed_tokens, made.saved_tokens) == (768, 0, 768)


def test_without_a_snapshot_one_window_is_replayed() -> None:
    made = plan(V41, 1000, 896)
    assert made == ResumePlan(
        mode=Mode.BOUNDED_REPLAY,
        exact=False,
        prompt_tokens=1000,
        matched_tokens=768,
        run_start=640,
        decoder_run_start=872,
        held_tokens=0,
        load=Load(0, 768, None, 6 * V41_BLOCK_BYTES, 0),
    )
    assert (made.write_floor, made.replayed_tokens, made.saved_tokens) == (768, 128, 640)


def test_exact_only_and_too_short_to_rebuild_is_cold() -> None:
    made = plan(V41, 1000, 896, allow_approximate=False)
    assert cut(made) == (Mode.COLD, 0, 0)
    assert made.exact
    assert made.load == Load(0, 0, None, 0, 0)
    assert made.decoder_run_start == 872


def test_exact_only_rebuilds_the_state_over_all_layers() -> None:
    made = plan(V41, 100_000, 99_968, allow_approximate=False)
    assert cut(made) == (Mode.EXACT_REBUILD, 97_280, 99_840)
    assert made.exact
    assert plan(V41, 100_000, 99_968).run_start == 99_712


def test_a_rebuild_needs_one_token_more_than_it_replays() -> None:
    """H = 2560 is 20 windows of 128: nothing is left to skip; one block later one block is."""
    assert cut(plan(V41, 2560 + 128, 2560, allow_approximate=False)) == (Mode.COLD, 0, 0)
    assert cut(plan(V41, 2560 + 256, 2688, allow_approximate=False)) == (Mode.EXACT_REBUILD, 128, 2688)


def test_an_exact_snapshot_beats_a_replay_that_runs_as_few_tokens() -> None:
    made = plan(V41, 100_000, 99_968, *exact(99_712))
    assert cut(made) == (Mode.SNAPSHOT, 99_712, 99_712)
    assert made.exact
    assert made.replayed_tokens == 0


def test_a_replayed_snapshot_that_saves_no_more_than_the_replay_loses_on_bytes() -> None:
    assert plan(V41, 100_000, 99_968, *replayed(99_712)).mode is Mode.BOUNDED_REPLAY
    assert cut(plan(V41, 100_000, 99_968, *replayed(99_840))) == (Mode.SNAPSHOT, 99_840, 99_840)


def test_at_equal_bytes_the_smaller_match_wins() -> None:
    """The snapshot at 8 costs as much as the block that the replay to 12 loads more."""
    layout = Layout(4, 10, 10, 4, 2, Replay.BOUNDED)
    assert cut(plan(layout, 15, 12, *replayed(8))) == (Mode.SNAPSHOT, 8, 8)
    dearer = Layout(4, 10, 11, 4, 2, Replay.BOUNDED)
    assert cut(plan(dearer, 15, 12, *replayed(8))) == (Mode.BOUNDED_REPLAY, 8, 12)


def test_a_snapshot_made_after_a_bounded_replay_serves_no_exact_request() -> None:
    cached_exactly = {"exact_global": 768, "allow_approximate": False}
    assert cut(plan(V41, 1100, 1024, *replayed(896), **cached_exactly)) == (Mode.COLD, 0, 0)
    assert cut(plan(V41, 1100, 1024, *replayed(896))) == (Mode.SNAPSHOT, 896, 896)


def test_an_exact_snapshot_on_replayed_blocks_is_no_exact_plan() -> None:
    made = plan(V41, 1100, 1024, *exact(768, 896), exact_global=768)
    assert cut(made) == (Mode.SNAPSHOT, 896, 896)
    assert not made.exact
    assert cut(plan(V41, 1100, 1024, *exact(768, 896), exact_global=768, allow_approximate=False))[1] == 768


def test_a_snapshot_past_the_cap_is_of_no_use() -> None:
    assert plan(V41, 1000, 896, *exact(896)).mode is Mode.BOUNDED_REPLAY


def test_full_attention_goes_on_after_the_cached_blocks() -> None:
    made = plan(LLAMA, 1000, 896)
    assert cut(made) == (Mode.FULL_ATTENTION, 896, 896)
    assert made.exact
    assert loaded(made) == (0, 896)
    assert made.decoder_run_start == 1000


def test_a_prompt_of_full_blocks_leaves_the_last_one_to_run() -> None:
    assert cut(plan(LLAMA, 1024, 1024)) == (Mode.FULL_ATTENTION, 896, 896)
    assert cut(plan(LLAMA, 1025, 1024)) == (Mode.FULL_ATTENTION, 1024, 1024)


def test_what_the_engine_holds_past_the_blocks_is_resident() -> None:
    made = plan(LLAMA, 1000, 896, hbm_tokens=992)
    assert cut(made) == (Mode.RESIDENT, 992, 992)
    assert made.exact
    assert made.load == Load(992, 992, None, 0, 0)


@pytest.mark.parametrize(("held", "run_start"), [(998, 998), (999, 999), (1000, 999)])
def test_one_token_runs_even_when_the_engine_holds_them_all(held: int, run_start: int) -> None:
    assert cut(plan(LLAMA, 1000, 0, hbm_tokens=held)) == (Mode.RESIDENT, run_start, run_start)


def test_a_block_that_is_half_held_is_loaded_whole() -> None:
    made = plan(LLAMA, 2000, 1024, hbm_tokens=300)
    assert loaded(made) == (256, 1024)
    assert tokens_by_source(made, LLAMA)[Source.HBM] == 300
    assert tokens_by_source(made, LLAMA)[Source.SSD] == 724


def test_blocks_that_are_held_whole_are_not_loaded() -> None:
    made = plan(LLAMA, 1000, 896, hbm_tokens=896)
    assert cut(made) == (Mode.FULL_ATTENTION, 896, 896)
    assert made.load == Load(896, 896, None, 0, 0)


def test_held_replayed_kv_is_loaded_again_for_an_exact_plan() -> None:
    made = plan(LLAMA, 1000, 896, hbm_tokens=896, hbm_exact_tokens=200)
    assert made.exact
    assert loaded(made) == (128, 896)
    assert tokens_by_source(made, LLAMA)[Source.HBM] == 200


def test_what_is_held_counts_as_cached() -> None:
    made = plan(V41, 1000, 0, hbm_tokens=900)
    assert cut(made) == (Mode.BOUNDED_REPLAY, 640, 768)
    assert made.load == Load(768, 768, None, 0, 0)
    assert made.held_tokens == 900


def test_a_held_state_counts_at_its_very_place_and_not_past_the_cap() -> None:
    assert cut(plan(V41, 1000, 0, hbm_tokens=872, hbm_state=True)) == (Mode.RESIDENT, 872, 872)
    assert cut(plan(V41, 1000, 0, hbm_tokens=873, hbm_state=True)) == (Mode.BOUNDED_REPLAY, 640, 768)
    assert cut(plan(V41, 1000, 0, hbm_tokens=872)) == (Mode.BOUNDED_REPLAY, 640, 768)


def test_a_held_state_is_exact_only_if_the_engine_says_so() -> None:
    held = {"hbm_tokens": 872, "hbm_state": True}
    assert not plan(V41, 1000, 0, **held).exact
    assert plan(V41, 1000, 0, hbm_exact_tokens=872, **held).exact
    assert plan(V41, 1000, 0, hbm_exact_tokens=871, allow_approximate=False, **held).mode is Mode.COLD


def test_recurrent_layers_need_a_snapshot() -> None:
    assert cut(plan(QWEN_NEXT, 1000, 896)) == (Mode.COLD, 0, 0)
    assert cut(plan(QWEN_NEXT, 1000, 896, *exact(512))) == (Mode.SNAPSHOT, 512, 512)


def test_windows_without_bounded_replay_are_rebuilt_exactly() -> None:
    assert cut(plan(GPT_OSS, 10_000, 9_984)) == (Mode.EXACT_REBUILD, 9_984 - 12 * 128, 9_984)
    assert cut(plan(GPT_OSS, 10_000, 9_984, supports={Ability.SNAPSHOT})) == (Mode.COLD, 0, 0)


def test_without_global_bytes_a_snapshot_is_all_it_takes() -> None:
    made = plan(MISTRAL, 1000, 0, *exact(896))
    assert cut(made) == (Mode.SNAPSHOT, 896, 896)
    assert made.load == Load(896, 896, 896, 0, 536_870_912)
    assert tokens_by_source(made, MISTRAL) == {
        Source.HBM: 0,
        Source.DRAM: 896,
        Source.SSD: 0,
        Source.REPLAY: 0,
        Source.PREFILL: 104,
    }


def test_without_global_bytes_a_rebuild_needs_nothing() -> None:
    made = plan(MISTRAL, 200_000, 0)
    assert cut(made) == (Mode.EXACT_REBUILD, 199_936 - 32 * 4096, 199_936)
    assert made.load == Load(199_936, 199_936, None, 0, 0)


@pytest.mark.parametrize("layout", [V41, LLAMA, QWEN_NEXT, GPT_OSS, MISTRAL])
def test_one_token_is_run_cold(layout: Layout) -> None:
    made = plan(layout, 1, 128, hbm_tokens=1, hbm_exact_tokens=1, hbm_state=True)
    assert cut(made) == (Mode.COLD, 0, 0)
    assert made.decoder_run_start == (0 if layout.decoder_window_tokens else 1)
    assert tokens_by_source(made, layout)[Source.PREFILL] == 1


@pytest.mark.parametrize("prompt_tokens", [127, 128, 129, 255, 256])
def test_a_prompt_as_short_as_the_decoders_window_runs_cold(prompt_tokens: int) -> None:
    """At 256 tokens the cap is 128 and so is H: the replay of one window starts at 0."""
    assert cut(plan(V41, prompt_tokens, prompt_tokens)) == (Mode.COLD, 0, 0)


def test_a_decoder_on_full_attention_never_starts_below_zero() -> None:
    """128 - 300 is below zero: what the engine holds is of no use."""
    layout = Layout(16, 16, 0, 0, 0, Replay.NONE, decoder_window_tokens=300)
    made = plan(layout, 128, 128, hbm_tokens=128)
    assert cut(made) == (Mode.COLD, 0, 0)
    assert made.decoder_run_start == 0


def test_a_replay_from_the_first_token_is_cold() -> None:
    assert cut(plan(V41, 384, 384)) == (Mode.BOUNDED_REPLAY, 128, 256)
    assert cut(plan(V41, 383, 383)) == (Mode.COLD, 0, 0)


def test_snapshots_mean_nothing_to_full_attention() -> None:
    assert cut(plan(LLAMA, 1000, 512, *exact(512, 896))) == (Mode.FULL_ATTENTION, 512, 512)


def test_a_fallback_is_the_best_plan_without_snapshots() -> None:
    request = request_for(V41, 1000)
    cached = Cached(896, 896, exact(768))
    assert cut(fallback_plan(V41, request, cached)) == (Mode.BOUNDED_REPLAY, 640, 768)
    recurrent = request_for(QWEN_NEXT, 1000)
    assert fallback_plan(QWEN_NEXT, recurrent, cached).mode is Mode.COLD


class TestLimit:
    """``max_load_bytes_per_saved_token``."""

    def test_at_the_limit_is_within_it(self) -> None:
        cost = 6 * V41_BLOCK_BYTES / 640
        assert plan(V41, 1000, 896, max_load_bytes_per_saved_token=cost).mode is Mode.BOUNDED_REPLAY
        assert plan(V41, 1000, 896, max_load_bytes_per_saved_token=cost - 0.01).mode is Mode.COLD

    def test_a_snapshot_too_dear_makes_way_for_the_replay(self) -> None:
        snapshot_cost = (6 * V41_BLOCK_BYTES + V41_SNAPSHOT_BYTES) / 768
        for limit, mode in ((snapshot_cost, Mode.SNAPSHOT), (snapshot_cost - 1, Mode.BOUNDED_REPLAY)):
            assert plan(V41, 1000, 896, *exact(768), max_load_bytes_per_saved_token=limit).mode is mode

    def test_what_is_held_is_free(self) -> None:
        made = plan(V41, 10_000, 9_984, hbm_tokens=5_000, max_load_bytes_per_saved_token=0)
        assert cut(made) == (Mode.BOUNDED_REPLAY, 4_864, 4_992)
        assert made.load.total_bytes == 0

    def test_of_a_million_tokens_as_many_are_loaded_as_the_limit_allows(self) -> None:
        """Held are 1,562 blocks; x more cost 113,920 x for 128 (1,561 + x) tokens: 196 are within 100 bytes a token."""
        made = plan(V41, 1_000_000, 999_936, hbm_tokens=200_000, max_load_bytes_per_saved_token=100)
        assert cut(made) == (Mode.BOUNDED_REPLAY, 128 * (1_561 + 197), 128 * (1_562 + 197))
        assert made.load.ssd_bytes / made.saved_tokens <= 100
        assert (made.load.ssd_bytes + V41_BLOCK_BYTES) / (made.saved_tokens + 128) > 100


class TestUsefulSnapshots:
    """Where the service looks for snapshots."""

    def test_where_replay_is_bounded_two_look_ups_are_enough(self) -> None:
        cached = Cached(999_936, 999_936)
        useful = useful_snapshot_boundaries(V41, request_for(V41, 1_000_000), cached)
        assert list(useful) == [999_680, 999_808]

    def test_only_an_exact_snapshot_can_win_the_tie(self) -> None:
        useful = useful_snapshot_boundaries(V41, request_for(V41, 100_000), Cached(99_968, 0))
        assert list(useful) == [99_840]

    def test_from_where_a_rebuild_starts_all_boundaries_are_useful(self) -> None:
        """At 97,280 a snapshot ties: it costs less than the 20 blocks which the rebuild loads more."""
        request = request_for(V41, 100_000, supports=EVERYTHING, allow_approximate=False)
        assert useful_snapshot_boundaries(V41, request, Cached(99_968, 99_968)) == range(97_280, 99_841, 128)

    def test_without_a_rebuild_all_boundaries_are_useful(self) -> None:
        useful = useful_snapshot_boundaries(QWEN_NEXT, request_for(QWEN_NEXT, 1000), Cached(896, 640))
        assert list(useful) == [128, 256, 384, 512, 640]

    @pytest.mark.parametrize("layout", [LLAMA, V41])
    def test_none_is_useful_without_state_or_to_an_engine_that_cannot_load_one(self, layout: Layout) -> None:
        request = request_for(layout, 1000, supports={Ability.BOUNDED_REPLAY})
        assert not useful_snapshot_boundaries(layout, request, Cached(896, 896))

    def test_none_is_useful_when_nothing_is_cached(self) -> None:
        assert not useful_snapshot_boundaries(V41, request_for(V41, 1000), Cached(0, 0))
