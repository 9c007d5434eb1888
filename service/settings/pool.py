"""The DRAM pool."""

from pydantic import Field, SecretStr

from service.settings.base import GIB, MAX_BYTES, MAX_SECONDS, MIB, Group


class PoolSettings(Group):
    """The DRAM pool: snapshots."""

    redis_url: SecretStr | None = Field(
        None,
        description="Redis of the pool: redis://, rediss://, unix://, redis+sentinel://, redis+cluster://."
        " Without it the pool is in this process.",
    )
    key_prefix: str = Field("kvshelf:", min_length=1, max_length=64, description="Prefix of every key in Redis.")
    budget_bytes: int = Field(
        1 * GIB,
        ge=1 * MIB,
        le=MAX_BYTES,
        description="Bytes of the in-process pool; tenants' are cut from it. A Redis has its own `maxmemory`.",
    )
    ttl_seconds: float = Field(
        300.0, gt=0, le=MAX_SECONDS, description="Life of a snapshot from its last use; 5 min by default."
    )
    timeout_seconds: float = Field(
        0.2, gt=0, le=10, description="Longest wait for Redis in one round; past it the snapshot is a miss."
    )
    request_seconds: float = Field(
        0.25, gt=0, le=60, description="Longest wait of one request for Redis, in all its rounds together."
    )
