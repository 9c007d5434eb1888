"""Reading what is stored before anybody needs it."""

from pydantic import Field

from service.settings.base import MAX_BYTES, MAX_SECONDS, MIB, Group


class ScrubSettings(Group):
    """Background scrubbing of the SSD tier: every record is read and compared with its checksum."""

    bytes_per_second: int = Field(
        20 * MIB, ge=0, le=MAX_BYTES, description="How fast; 0 turns it off, also when it is asked for."
    )
    interval_seconds: float = Field(
        7 * 86_400.0, gt=0, le=MAX_SECONDS, description="From the end of a pass to the start of the next; 7 days."
    )
