"""The words that cross the wire and reach the disk: record classes, provenance and reasons for a miss.

The numbers are part of the wire format and of the on-disk format. They never change their meaning; a new word gets a
new number. Zero is never a valid number, so that zeroed memory is never taken for a record.
"""

from enum import Enum, IntEnum


class RecordClass(IntEnum):
    """Which of the two stored kinds of KV a record holds."""

    BLOCK = 1
    """Global KV of one block: ``block_tokens`` consecutive tokens of all global layers."""
    SNAPSHOT = 2
    """The whole state of all state layers at one block boundary."""


class Provenance(IntEnum):
    """Whether KV is bit-identical to what a full prefill makes. A larger number is the better one."""

    REPLAYED = 1
    """Computed after a bounded replay, or on something that was, or of unknown origin."""
    EXACT = 2
    """Computed by a run that loaded and stood on exact KV alone."""


class MissReason(str, Enum):
    """Why a record is not served. A miss is data, never an exception."""

    NEVER_STORED = "never_stored"
    EXPIRED = "expired"
    EVICTED = "evicted"
    CORRUPT = "corrupt"
    TIER_DOWN = "tier_down"

    @property
    def code(self) -> int:
        """The reason's number in a frame header, 1 or more; 0 there means that the frame is no miss."""
        return _CODES[self]

    @classmethod
    def from_code(cls, code: int) -> "MissReason":
        """The reason of a frame header's number; raises ValueError on a number of no reason."""
        for reason, known in _CODES.items():
            if known == code:
                return reason
        raise ValueError(f"{code} is no miss reason")


_CODES = {
    MissReason.NEVER_STORED: 1,
    MissReason.EXPIRED: 2,
    MissReason.EVICTED: 3,
    MissReason.CORRUPT: 4,
    MissReason.TIER_DOWN: 5,
}
