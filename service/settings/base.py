"""What all groups of settings share."""

from pydantic import BaseModel, ConfigDict

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MAX_BYTES = 1 << 60
MAX_SECONDS = 10 * 365 * 86_400.0
"""Ten years: what is longer is no time to live but a mistake, and overflows the clocks of others."""


class Group(BaseModel):
    """A group of settings: unknown keys are refused, and nothing changes once it is made."""

    model_config = ConfigDict(extra="forbid", frozen=True)
