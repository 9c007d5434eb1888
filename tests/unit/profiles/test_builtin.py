"""The builtin profiles come to the sizes known for their models."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from service.planner.base import Layout, Replay
from service.profiles import (
    ProfileError,
    UnknownProfileError,
    get_profile,
    list_profiles,
    profile_from_document,
)

KNOWN: list[dict[str, Any]] = json.loads(Path(__file__).with_name("known_profiles.json").read_text())["profiles"]
IDS = [known["id"] for known in KNOWN]


def test_the_builtin_profiles_are_those_with_known_answers() -> None:
    assert [profile.id for profile in list_profiles()] == IDS
    assert len(IDS) == 18


@pytest.mark.parametrize("known", KNOWN, ids=IDS)
def test_every_known_answer_comes_out(known: dict[str, Any]) -> None:
    facts = get_profile(known["id"]).facts()
    assert facts == known
    assert {key: type(value) for key, value in facts.items()} == {key: type(value) for key, value in known.items()}


@pytest.mark.parametrize("profile_id", IDS)
def test_documents_round_trip_with_the_same_digest(profile_id: str) -> None:
    profile = get_profile(profile_id)
    again = profile_from_document(json.loads(json.dumps(profile.document())))
    assert again == profile
    assert again.digest == profile.digest


def test_layouts_of_different_geometry_have_different_digests() -> None:
    digests = {profile.digest for profile in list_profiles()}
    assert len(digests) == len(IDS)
    assert all(len(bytes.fromhex(digest)) == 32 for digest in digests)


def test_layout_at_128_tokens_a_block() -> None:
    assert get_profile("deepseek-v4.1-flash/fp4").layout(128) == Layout(
        block_tokens=128,
        block_bytes=113_920,
        snapshot_bytes=1_351_680,
        window_tokens=128,
        state_layers=20,
        replay=Replay.BOUNDED,
        decoder_window_tokens=128,
    )


def test_a_snapshot_is_state_and_auxiliary_state() -> None:
    assert get_profile("deepseek-v4-flash/584+fp8").snapshot_bytes == 3_214_336 + 430_080


def test_block_bytes_are_exact_where_a_token_has_no_whole_number_of_bytes() -> None:
    profile = get_profile("deepseek-v4-flash/584+mxfp4")
    assert profile.global_bytes_per_token == Fraction(14_057, 4)
    assert profile.block_bytes(128) == 449_824
    assert profile.block_bytes(256) == 2 * 449_824


@pytest.mark.parametrize("block_tokens", [-128, 0, 1, 64, 127, 129, 192])
def test_a_block_that_would_split_a_row_is_refused_with_the_multiple(block_tokens: int) -> None:
    profile = get_profile("deepseek-v4-flash/584+mxfp4")
    with pytest.raises(ProfileError, match="multiple of 128"):
        profile.layout(block_tokens)
    with pytest.raises(ProfileError, match="multiple of 128"):
        profile.block_bytes(block_tokens)


def test_an_odd_block_is_refused_where_two_tokens_share_a_row() -> None:
    profile = get_profile("deepseek-v4.1-flash/fp4")
    assert profile.block_bytes(2) == 1780
    with pytest.raises(ProfileError, match=r"multiple of 2 .*got 3"):
        profile.block_bytes(3)


def test_an_unknown_id_suggests_close_ones() -> None:
    with pytest.raises(UnknownProfileError, match=r"deepseek-v4\.1-flash/fp4") as caught:
        get_profile("deepseek-v4.1-flash")
    assert "deepseek-v4.1-flash/fp8" in caught.value.suggestions
    with pytest.raises(UnknownProfileError, match="none is close"):
        get_profile("?")


@pytest.mark.parametrize("profile_id", IDS)
@pytest.mark.parametrize("bytes_per_token", [1, 3])
def test_a_miniature_plans_like_its_original(profile_id: str, bytes_per_token: int) -> None:
    profile = get_profile(profile_id)
    small = profile.miniature(bytes_per_token)
    assert small.id == f"{profile_id}@{bytes_per_token}B"
    assert small.global_bytes_per_token == (bytes_per_token if profile.global_bytes_per_token else 0)
    planned = (
        "window_tokens",
        "state_layers",
        "replay",
        "decoder_window_tokens",
        "boundary_multiple_tokens",
    )
    assert [getattr(small, name) for name in planned] == [getattr(profile, name) for name in planned]
    windows = sum(rows.layers * rows.window_tokens for rows in profile.window_rows)
    assert small.snapshot_bytes == windows + sum(state.layers for state in profile.recurrent_state)
    assert small.digest != profile.digest
    assert profile_from_document(small.document()) == small


@pytest.mark.parametrize("bytes_per_token", [-1, 0, 65_537])
def test_a_miniature_of_no_or_too_many_bytes_is_refused(bytes_per_token: int) -> None:
    with pytest.raises(ProfileError, match="bytes_per_token"):
        get_profile("llama-3-8b/bf16").miniature(bytes_per_token)
