"""The SSD tier."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from service.settings.base import GIB, MAX_BYTES, MAX_SECONDS, MIB, Group


class StoreSettings(Group):
    """The SSD tier: global KV."""

    data_dir: Path = Field(Path("kvshelf-data"), description="Directory of the SSD tier and of the namespaces.")
    redis_url: SecretStr | None = Field(
        None,
        description="A store that speaks Redis, shared by several nodes, in place of this node's own disk."
        " URLs as those of the pool; nothing in it is durable but by its own doing.",
    )
    key_prefix: str = Field(
        "kvshelf-global:", min_length=1, max_length=64, description="Prefix of every key in that store."
    )
    budget_bytes: int = Field(
        10 * GIB, ge=16 * MIB, le=MAX_BYTES, description="Bytes on disk that segments and index may take together."
    )
    memory_bytes: int = Field(
        512 * MIB,
        ge=0,
        le=MAX_BYTES,
        description="Memory for the blocks that were stored or read last: they are served from it.",
    )
    ttl_seconds: float = Field(
        72 * 3600.0, gt=0, le=MAX_SECONDS, description="Life of a block from its last use; 72 h by default."
    )
    when_full: Literal["evict", "refuse"] = Field(
        "evict", description="At the budget: `evict` the oldest segment, or `refuse` stores and so keep the full life."
    )
