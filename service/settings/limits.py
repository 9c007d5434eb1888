"""Bounds on what a caller may send."""

from pydantic import Field, model_validator

from service.settings.base import GIB, KIB, MIB, Group
from service.units import bytes_text

SLACK_BYTES = 64 << 10
"""What is read with a record, of its header and of the one behind it."""


class LimitSettings(Group):
    """Bounds on what a caller may send."""

    max_prompt_tokens: int = Field(4_194_304, ge=1, description="Longest prompt of a plan, in tokens.")
    max_prompt_blocks: int = Field(131_072, ge=1, description="Most blocks, and most hashes, of one prompt.")
    max_snapshot_bytes: int = Field(
        1 * GIB, ge=1, description="Largest snapshot a namespace may have, one shard of it."
    )
    max_store_records: int = Field(65_536, ge=1, description="Most frames in one store.")
    max_list_items: int = Field(65_536, ge=1, description="Most keys in one touch or delete, tokens in one self-test.")
    max_json_bytes: int = Field(8 * MIB, ge=1 * KIB, description="Largest JSON body.")
    max_namespaces: int = Field(10_000, ge=1, description="Most namespaces of one tenant; of all, without tokens.")
    max_connections: int = Field(
        2048, ge=8, le=1_000_000, description="Connections at one time, of HTTP and of gRPC each."
    )
    max_requests: int = Field(
        1024, ge=2, le=1_000_000, description="Requests under way at one time, over HTTP and gRPC together."
    )
    max_body_bytes: int = Field(
        4 * GIB, ge=1 * MIB, description="Bytes of the bodies of all requests that are in memory at one time."
    )
    max_source_share: float = Field(
        0.5, gt=0, le=1, description="What one source may have of the connections, requests and body bytes."
    )
    stall_seconds: float = Field(
        15.0, ge=0.1, le=3600, description="How long a client may leave a head, a body or an answer where it is."
    )

    @model_validator(mode="after")
    def _one_snapshot_has_room(self) -> "LimitSettings":
        if self.max_body_bytes * self.max_source_share < self.max_snapshot_bytes + SLACK_BYTES:
            raise ValueError(
                "limits.max_body_bytes, times limits.max_source_share, has no room for one snapshot of"
                f" limits.max_snapshot_bytes = {bytes_text(self.max_snapshot_bytes)}:"
                " raise the former or lower the latter"
            )
        return self
