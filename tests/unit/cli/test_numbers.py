"""Durations and sizes on the command line."""

import argparse

import pytest

from service.cli.numbers import byte_count, bytes_per_token, seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [("90", 90), ("90s", 90), ("5m", 300), ("1.5h", 5400), ("72h", 259_200), ("3d", 259_200), ("0.25 s", 0.25)],
)
def test_durations(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "-1s", "5 minutes", "h", "1e3", "5M", "4000d", "\u0665m", "nan", "inf"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no duration above 0"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("4096", 4096), ("4096B", 4096), ("1KB", 1000), ("1KiB", 1024), ("64GB", 64 * 10**9),
        ("64GiB", 64 << 30), ("1.5TB", 15 * 10**11), ("2 TiB", 2 << 40), ("1PB", 10**15),
    ],
)  # fmt: skip
def test_sizes(text: str, value: int) -> None:
    assert byte_count(text) == value


@pytest.mark.parametrize("text", ["", "-1", "GB", "1gb", "1GBs", "1e9", "2000PiB", "0x10"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no size"):
        byte_count(text)


def test_the_size_of_records() -> None:
    assert [bytes_per_token(text) for text in ("full", "0", "1", "64")] == [None, None, 1, 64]
    with pytest.raises(argparse.ArgumentTypeError):
        bytes_per_token("half")
