"""Sizes and durations with units: read to the byte, written so that they are read again, and refused unquoted."""

import pytest

from service.units import bytes_of, bytes_text, seconds_of, seconds_text


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("10GiB", 10 << 30), ("10 GiB", 10 << 30), ("512MiB", 512 << 20), ("1TB", 10**12), ("0", 0),
        ("2_000_000", 2_000_000), ("1152921504606846975", (1 << 60) - 1), ("0.5KiB", 512),
    ],
)  # fmt: skip
def test_sizes_are_read_to_the_byte(text: str, count: int) -> None:
    assert bytes_of(text) == count


@pytest.mark.parametrize("text", ["", "10gib", "10  GiB", "1__0", "_1", "1_", "-1", "1e3", "10 GiB ", "secret"])
def test_what_is_none_is_refused_and_not_repeated(text: str) -> None:
    for read in (bytes_of, seconds_of):
        with pytest.raises(ValueError, match="is no ") as caught:
            read(text)
        assert "secret" not in str(caught.value)


def test_what_is_written_is_read_again() -> None:
    assert [bytes_text(count) for count in (0, 16 << 20, 10 << 30, 1 << 60)] == ["0 B", "16 MiB", "10 GiB", "1024 PiB"]
    assert [seconds_text(value) for value in (0, 0.25, 90, 3600, 259_200, 5400)] == [
        "0s",
        "0.25s",
        "90s",
        "1h",
        "3d",
        "90m",
    ]
    assert all(bytes_of(bytes_text(count)) == count for count in (5, 1 << 10, 3 << 40))
    assert all(seconds_of(seconds_text(value)) == value for value in (0.5, 61, 7200, 864_000))
