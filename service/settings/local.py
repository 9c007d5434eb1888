"""The local path."""

from pathlib import Path

from pydantic import Field

from service.settings.base import Group


class LocalSettings(Group):
    """The local path: engines on this machine read what they leased from the segment files."""

    enabled: bool = Field(True, description="Whether there is one.")
    socket: Path | None = Field(None, description="The socket file; `local.sock` in the data directory without it.")
    max_clients: int = Field(64, ge=1, le=4096, description="Connections at one time; more use the other faces.")
