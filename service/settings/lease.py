"""Plans and what they hold."""

from pydantic import Field, model_validator

from service.settings.base import MAX_SECONDS, Group


class LeaseSettings(Group):
    """Plans and what they hold."""

    ttl_seconds: float = Field(
        60.0, gt=0, le=3600, description="Life of a lease from its last use, unless asked otherwise."
    )
    max_ttl_seconds: float = Field(600.0, gt=0, le=86_400, description="The longest life a caller may ask for.")
    max_leases: int = Field(10_000, ge=1, description="Leases at one time; past it a plan is answered with 503.")
    max_records: int = Field(2_000_000, ge=1, description="Records under lease at one time; past it 503.")
    max_tenant_share: float = Field(
        0.5, gt=0, le=1, description="What one tenant may have of max_leases and max_records, as a share."
    )
    plan_memory_seconds: float = Field(
        3600.0, gt=0, le=MAX_SECONDS, description="How long a plan's facts are remembered for the stores that name it."
    )
    max_plans: int = Field(100_000, ge=1, description="Plans remembered at one time; the oldest go first.")

    @model_validator(mode="after")
    def _is_within_the_most(self) -> "LeaseSettings":
        if self.ttl_seconds > self.max_ttl_seconds:
            raise ValueError("lease.ttl_seconds must not be above lease.max_ttl_seconds")
        return self
