"""What all groups of settings share."""

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from service.units import bytes_of, bytes_text, seconds_of, seconds_text

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MAX_BYTES = 1 << 60
MAX_SECONDS = 10 * 365 * 86_400.0
"""Ten years: what is longer is no time to live but a mistake, and overflows the clocks of others."""


def is_size(name: str) -> bool:
    """Whether the setting of a name is a number of bytes, or of bytes a second."""
    return name.endswith("_bytes") or name == "bytes_per_second"


def is_duration(name: str) -> bool:
    """Whether the setting of a name is a number of seconds."""
    return name.endswith("_seconds")


def as_written(name: str, value: int | float) -> str:
    """The value of the setting of a name in the units that it may be written in."""
    if is_size(name):
        return bytes_text(int(value))
    return seconds_text(value) if is_duration(name) else str(value)


class Group(BaseModel):
    """A group of settings: unknown keys are refused, and nothing changes once it is made.

    Text is taken for sizes and durations wherever it comes from: ``10GiB``, ``72h``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _take_units(cls, value: object, info: ValidationInfo) -> object:
        name = info.field_name or ""
        read: Callable[[str], float] | None = bytes_of if is_size(name) else seconds_of if is_duration(name) else None
        return read(value) if read is not None and isinstance(value, str) else value
