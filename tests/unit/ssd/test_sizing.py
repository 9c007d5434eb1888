"""How a budget is cut into segments."""

import pytest

from storage.ssd.format import PAGE_BYTES, padded_bytes
from storage.ssd.sizing import MIN_INDEX_BYTES, MIN_SEGMENTS, max_payload_bytes, segment_bytes

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize("budget", [8 * MIB, 100 * MIB, 256 * MIB, GIB, 7 * GIB, 1000 * GIB])
def test_segments_are_whole_pages_and_many(budget: int) -> None:
    size = segment_bytes(budget)
    assert size % PAGE_BYTES == 0
    assert budget // size >= 15


@pytest.mark.parametrize(
    ("budget", "size"), [(16 * MIB, MIB), (128 * MIB, MIB), (8192 * MIB, 63 * MIB), (9 << 40, 64 * MIB)]
)
def test_segments_are_clamped(budget: int, size: int) -> None:
    assert segment_bytes(budget) // MIB == size // MIB


def test_the_largest_record_fits() -> None:
    for length in (MIB - 129, MIB - 128, MIB - 127, 42_000_000):
        size = segment_bytes(GIB, length)
        assert max_payload_bytes(size) >= length
        assert size >= padded_bytes(length)


def test_a_budget_for_too_few_segments_is_refused() -> None:
    length = 10_000_000
    least = MIN_SEGMENTS * padded_bytes(length) + MIN_INDEX_BYTES
    assert segment_bytes(least, length) == padded_bytes(length)
    with pytest.raises(ValueError, match="too small"):
        segment_bytes(least - 1, length)
    with pytest.raises(ValueError, match="too small"):
        segment_bytes(100_000)
