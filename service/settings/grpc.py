"""The gRPC face."""

from pydantic import Field

from service.settings.base import Group


class GrpcSettings(Group):
    """The gRPC face. It listens on ``server.host``."""

    port: int | None = Field(
        None, ge=0, le=65_535, description="Port of the gRPC face; 0 takes a free one and says which. Without it: none."
    )
    max_calls: int = Field(1000, ge=1, le=100_000, description="Calls under way at one time; past it they are refused.")
