"""Profiles of one's own: what is accepted, what is refused, and that a refusal names the place."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from service.planner.base import Replay
from service.profiles import Profile, ProfileError, load_profile_file, profile_from_document

ROW = [{"name": "key and value", "dtype": "bf16", "shape": [2, 8, 128]}]
GLOBAL = {"name": "attention", "layers": 4, "row": ROW}
WINDOW = {"layers": 2, "window_tokens": 16, "row": ROW}
STATE = {"layers": 3, "state": [{"dtype": "f32", "shape": [10]}]}


def make(**fields: Any) -> Profile:
    return profile_from_document({"id": "mine/bf16", **fields})


def refused(**fields: Any) -> str:
    with pytest.raises(ProfileError) as caught:
        profile_from_document({"id": "mine/bf16", "global_rows": [GLOBAL]} | fields)
    return str(caught.value)


def row_bytes(dtype: str, *shape: int) -> Fraction:
    return make(global_rows=[{"layers": 1, "row": [{"dtype": dtype, "shape": list(shape)}]}]).global_bytes_per_token


@pytest.mark.parametrize(
    ("dtype", "shape", "size"),
    [
        ("f32", (4,), 16),
        ("bf16", (8, 128), 2048),
        ("e4m3", (448,), 448),
        ("e2m1", (512,), 256),
        ("mxfp4", (128,), 64 + 4),
        ("mxfp4", (2, 32), 32 + 2),
        ("mxfp6", (32,), 24 + 1),
        ("mxfp8", (64,), 64 + 2),
        ("nvfp4", (512,), 256 + 32),
        ("i4", (2,), 1),
    ],
)
def test_sizes_of_formats(dtype: str, shape: tuple[int, ...], size: int) -> None:
    assert row_bytes(dtype, *shape) == size


@pytest.mark.parametrize(
    ("dtype", "shape", "text"),
    [
        ("mxfp4", [33], "splits a group"),
        ("mxfp4", [32, 2], "splits a group"),
        ("nvfp4", [24], "splits a group"),
        ("e2m1", [3], "no whole number of bytes"),
        ("fp32", [1], "f32"),
        ("BF16", [1], "bf16"),
        ("bf16", [], "length >= 1"),
        ("bf16", [0], ">= 1"),
        ("bf16", [-1], ">= 1"),
        ("bf16", [1 << 25], "<="),
        ("bf16", [1] * 9, "length <= 8"),
        ("bf16", [1.5], "float"),
        ("bf16", [True], "bool"),
        ("bf16", ["1"], "str"),
    ],
)
def test_parts_out_of_bounds_are_refused_by_place(dtype: str, shape: list[Any], text: str) -> None:
    message = refused(global_rows=[GLOBAL, {"layers": 1, "row": [{"dtype": dtype, "shape": shape}]}])
    assert message.startswith("global_rows[1].row[0]")
    assert text in message


@pytest.mark.parametrize(
    ("ratio", "exact", "multiple"),
    [(1, 1, 1), ("1", 1, 1), ("1/4", Fraction(1, 4), 4), ("2/8", Fraction(1, 4), 4), ("3/2", Fraction(3, 2), 2)],
)
def test_compression_ratios(ratio: int | str, exact: Fraction, multiple: int) -> None:
    profile = make(global_rows=[GLOBAL | {"rows_per_token": ratio}])
    assert profile.global_bytes_per_token == 4 * 4096 * exact
    assert profile.boundary_multiple_tokens == multiple
    assert profile.digest == make(global_rows=[GLOBAL | {"rows_per_token": str(exact)}]).digest


@pytest.mark.parametrize(
    "ratio", [0, "0/4", "1/0", "1/65537", "-1/4", "0.25", "", " 1", "1/4/2", "x", "9" * 40, "\u0661"]
)
def test_ratios_that_make_no_sense_are_refused(ratio: int | str) -> None:
    assert "rows_per_token" in refused(global_rows=[GLOBAL | {"rows_per_token": ratio}])


def test_a_ratio_as_a_float_is_refused_by_place() -> None:
    assert refused(global_rows=[GLOBAL | {"rows_per_token": 0.25}]).startswith("global_rows[0].rows_per_token")


def test_the_boundary_multiple_makes_the_rows_of_all_layers_whole() -> None:
    rows = [GLOBAL | {"rows_per_token": ratio} for ratio in ("1/4", "1/6", 1)]
    profile = make(global_rows=rows)
    assert profile.boundary_multiple_tokens == 12
    assert profile.block_bytes(12) == (3 + 2 + 12) * 4 * 4096


def test_windows_of_different_sizes() -> None:
    profile = make(window_rows=[WINDOW, WINDOW | {"window_tokens": 64, "layers": 1}])
    assert (profile.window_tokens, profile.state_layers) == (64, 3)
    assert profile.state_bytes == (2 * 16 + 64) * 4096


def test_auxiliary_state_is_in_the_snapshot_and_no_layer() -> None:
    profile = make(window_rows=[WINDOW], auxiliary_state=[STATE])
    assert (profile.state_bytes, profile.auxiliary_state_bytes) == (2 * 16 * 4096, 120)
    assert profile.snapshot_bytes == 2 * 16 * 4096 + 120
    assert profile.state_layers == 2


@pytest.mark.parametrize("asked", list(Replay))
def test_replay_is_as_asked_only_where_all_state_is_windows(asked: Replay) -> None:
    assert make(window_rows=[WINDOW], replay=asked.value).replay is asked
    assert make(window_rows=[WINDOW], recurrent_state=[STATE], replay=asked.value).replay is Replay.NONE
    assert make(global_rows=[GLOBAL], replay=asked.value).replay is Replay.NONE


def test_replay_is_exact_for_windows_unless_said_otherwise() -> None:
    assert make(window_rows=[WINDOW]).replay is Replay.EXACT


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"layers": 3}, ["profile", "'layers'", "global_rows"]),
        ({"windw_rows": []}, ["profile", "'windw_rows'", "did you mean 'window_rows'"]),
        ({"global_rows": [GLOBAL | {"window_tokens": 3}]}, ["global_rows[0]", "'window_tokens'", "rows_per_token"]),
        ({"window_rows": [WINDOW | {"rows_per_token": 3}]}, ["window_rows[0]", "'rows_per_token'"]),
        ({"recurrent_state": [STATE | {"row": []}]}, ["recurrent_state[0]", "'row'", "state"]),
        ({"global_rows": [GLOBAL | {"row": [{"dtpe": "bf16"}]}]}, ["global_rows[0].row[0]", "'dtpe'", "'dtype'"]),
    ],
)
def test_unknown_keys_are_named_with_a_hint(fields: dict[str, Any], parts: list[str]) -> None:
    message = refused(**fields)
    assert [part for part in parts if part not in message] == []


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"id": ""}, "id"),
        ({"id": "a b"}, "id"),
        ({"id": "/x"}, "id"),
        ({"id": "x\n"}, "id"),
        ({"id": "x" * 129}, "id"),
        ({"id": 7}, "id"),
        ({"note": "x" * 2001}, "note"),
        ({"model": "x" * 129}, "model"),
        ({"replay": "sometimes"}, "replay: .*bounded, exact, none"),
        ({"decoder_window_tokens": -1}, "decoder_window_tokens"),
        ({"decoder_window_tokens": 1 << 23}, "decoder_window_tokens"),
        ({"global_rows": []}, "at least one of"),
        ({"global_rows": {}}, "global_rows"),
        ({"global_rows": [7]}, r"global_rows\[0\]"),
        ({"global_rows": [GLOBAL] * 65}, "global_rows"),
        ({"global_rows": [GLOBAL | {"layers": 0}]}, r"global_rows\[0\]\.layers"),
        ({"global_rows": [GLOBAL | {"layers": 10_001}]}, r"global_rows\[0\]\.layers"),
        ({"global_rows": [GLOBAL | {"layers": 10**30}]}, r"global_rows\[0\]\.layers"),
        ({"global_rows": [GLOBAL | {"row": []}]}, r"global_rows\[0\]\.row"),
        ({"global_rows": [{"layers": 1}]}, r"global_rows\[0\]: .*row"),
        ({"window_rows": [WINDOW | {"window_tokens": 0}]}, r"window_rows\[0\]\.window_tokens"),
        ({"auxiliary_state": [STATE]}, "auxiliary_state"),
        ({"global_rows": [GLOBAL | {"layers": 10_000, "rows_per_token": "65536"}]}, "bytes per token"),
        ({"window_rows": [WINDOW | {"layers": 10_000, "window_tokens": 1 << 22}]}, "snapshot bytes"),
        (
            {"global_rows": [GLOBAL | {"rows_per_token": "1/257"}, GLOBAL | {"rows_per_token": "1/256"}]},
            "boundary_multiple_tokens",
        ),
    ],
)
def test_nonsense_is_refused_by_place(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ProfileError, match=text):
        profile_from_document({"id": "mine/bf16", "global_rows": [GLOBAL]} | fields)


def test_a_document_without_an_id_is_refused() -> None:
    with pytest.raises(ProfileError, match="id"):
        profile_from_document({"global_rows": [GLOBAL]})


def test_a_document_that_is_no_table_is_refused() -> None:
    with pytest.raises(ProfileError, match="object"):
        profile_from_document([1])  # type: ignore[arg-type]


def test_the_digest_ignores_what_only_describes() -> None:
    plain = make(global_rows=[GLOBAL])
    described = profile_from_document(
        {"id": "other", "model": "m", "note": "n", "geometry": "g", "global_rows": [GLOBAL]}
    )
    assert described.digest == plain.digest


@pytest.mark.parametrize(
    "fields",
    [
        {"global_rows": [GLOBAL | {"layers": 5}]},
        {"global_rows": [GLOBAL | {"name": "other"}]},
        {"global_rows": [GLOBAL | {"row": [{"dtype": "f16", "shape": [2, 8, 128], "name": "key and value"}]}]},
        {"global_rows": [GLOBAL | {"row": [{"dtype": "bf16", "shape": [8, 2, 128], "name": "key and value"}]}]},
        {"global_rows": [GLOBAL], "window_rows": [WINDOW]},
        {"global_rows": [GLOBAL], "decoder_window_tokens": 1},
    ],
)
def test_the_digest_tells_layouts_of_equal_sizes_apart(fields: dict[str, Any]) -> None:
    assert make(**fields).digest != make(global_rows=[GLOBAL]).digest


def test_a_file_is_loaded_and_its_faults_name_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('id = "mine"\n[[global_rows]]\nlayers = 2\nrow = [{dtype = "u8", shape = [3]}]\n')
    assert load_profile_file(file).global_bytes_per_token == 6
    for content in (b"id = ", b"\xff\xfe", b"#" * ((1 << 20) + 1), b'id = "mine"'):
        file.write_bytes(content)
        with pytest.raises(ProfileError, match=r"mine\.toml: "):
            load_profile_file(file)
    with pytest.raises(ProfileError, match=r"absent\.toml: No such file"):
        load_profile_file(tmp_path / "absent.toml")
