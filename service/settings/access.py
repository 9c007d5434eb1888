"""Who may ask, and what."""

from pathlib import Path

from pydantic import Field

from service.settings.base import Group


class AccessSettings(Group):
    """Who may ask, and what."""

    token_file: Path | None = Field(
        None, description="TOML file with the hashes of the tokens. Without it anybody on this machine may do anything."
    )
    allowed_hosts: tuple[str, ...] = Field(
        (),
        max_length=64,
        description="Host names, beyond the loopback ones, that the service is asked for without tokens.",
    )
