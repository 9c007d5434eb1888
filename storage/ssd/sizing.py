"""How a budget is cut into segments."""

from enum import StrEnum

from storage.ssd.format import HEADER_BYTES, PAGE_BYTES, padded_bytes

SEGMENTS_PER_BUDGET = 128
INDEX_SHARE = 0.004
"""What the index takes of the budget with records of 114 KB, measured and rounded up."""

MIN_SEGMENT_BYTES = 1 << 20
MAX_SEGMENT_BYTES = 64 << 20
MIN_SEGMENTS = 4
"""One being written, one in reserve to carry records into, one to take back, and one that may be held."""

MIN_INDEX_BYTES = 256 << 10


class WhenFull(StrEnum):
    """What a tier does when the budget is spent on records that have not expired."""

    EVICT = "evict"
    """The oldest segment goes; what was used recently is carried forward."""
    REFUSE = "refuse"
    """New records are refused, so that whatever was stored lives its whole TTL."""


def segment_bytes(budget_bytes: int, max_record_bytes: int = 0) -> int:
    """The size of the segments that a budget is cut into: 1/128 of it within 1 and 64 MiB, but the largest record fits.

    Args:
        budget_bytes: what segments and index may take together.
        max_record_bytes: the largest payload that must fit; 0 when any size will do.

    Raises:
        ValueError: fewer than ``MIN_SEGMENTS`` such segments fit in the budget.
    """
    share = int(budget_bytes * (1 - INDEX_SHARE)) // SEGMENTS_PER_BUDGET
    size = min(max(share, MIN_SEGMENT_BYTES), MAX_SEGMENT_BYTES, max(budget_bytes // 16, PAGE_BYTES))
    size = max(size // PAGE_BYTES * PAGE_BYTES, padded_bytes(max_record_bytes))
    need = MIN_SEGMENTS * size + MIN_INDEX_BYTES
    if need > budget_bytes:
        raise ValueError(
            f"budget_bytes={budget_bytes} is too small: records of {max_record_bytes} bytes need at least"
            f" {MIN_SEGMENTS} segments of {size} bytes and an index, {need} bytes"
        )
    return size


def max_payload_bytes(segment_size_bytes: int) -> int:
    """The largest payload that fits into a segment."""
    return segment_size_bytes - HEADER_BYTES


def index_margin_bytes(budget_bytes: int) -> int:
    """What is kept free for the index to grow into before a segment is given up for it."""
    return max(budget_bytes // 512, MIN_INDEX_BYTES // 2)


def map_bytes(budget_bytes: int) -> int:
    """The index's address space. Only reserved, never allocated; the budget bounds what is used of it."""
    return max(1 << 28, budget_bytes // 2 // PAGE_BYTES * PAGE_BYTES)
