"""Where and how the service listens."""

from typing import Literal

from pydantic import Field

from service.settings.base import Group


class ServerSettings(Group):
    """Where and how the service listens."""

    host: str = Field("127.0.0.1", description="Address to bind; one beyond this machine takes tokens.")
    port: int = Field(8710, ge=0, le=65_535, description="Port of the REST face; 0 takes a free one and says which.")
    workers: int = Field(16, ge=1, le=256, description="Threads that do blocking work (disk, Redis, hashing).")
    drain_seconds: float = Field(
        10.0, ge=0, le=600, description="How long a stop waits for requests under way before it cuts them off."
    )
    log_format: Literal["json", "text"] = Field("json", description="`json` for machines, `text` for a person.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least level that is logged."
    )
