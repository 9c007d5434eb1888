"""Who may ask, and what."""

from pathlib import Path

from pydantic import Field, field_validator

from service.access import OPERATOR
from service.access.tokens import check_tenant
from service.settings.base import MAX_BYTES, MIB, Group

MIN_STORE_BYTES, MIN_POOL_BYTES = 16 * MIB, 1 * MIB
"""The least budget of a shelf."""


class TenantSettings(Group):
    """What is one tenant's own. What is not given it shares with all others that have nothing of their own."""

    store_budget_bytes: int | None = Field(
        None, ge=MIN_STORE_BYTES, le=MAX_BYTES, description="Bytes of its own SSD shelf, out of store.budget_bytes."
    )
    pool_budget_bytes: int | None = Field(
        None, ge=MIN_POOL_BYTES, le=MAX_BYTES, description="Bytes of its own DRAM shelf, out of pool.budget_bytes."
    )


class SharedNamespace(Group):
    """A namespace of one tenant that others may read: a common system prompt, say."""

    tenant: str = Field(min_length=1, description="Whose it is; only this tenant writes.")
    namespace: str = Field(min_length=1, description="Its name, under which the readers know it too.")
    readers: tuple[str, ...] = Field((), description="The tenants that may read it; none listed: all.")


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
    tenants: dict[str, TenantSettings] = Field(
        {}, max_length=1000, description="Tenants with budgets of their own: nobody else's records take their space."
    )
    shared: tuple[SharedNamespace, ...] = Field(
        (), max_length=1000, description="Namespaces that other tenants may read."
    )

    @field_validator("shared")
    @classmethod
    def _have_names_of_their_own(cls, shared: tuple[SharedNamespace, ...]) -> tuple[SharedNamespace, ...]:
        names = [one.namespace for one in shared]
        if any(OPERATOR in one.readers for one in shared):
            raise ValueError(f"{OPERATOR!r} is no tenant; leave readers out to share with all")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two tenants share a namespace under one name, {twice[0]!r}; readers could not tell")
        return shared

    @field_validator("tenants")
    @classmethod
    def _are_tenants(cls, tenants: dict[str, TenantSettings]) -> dict[str, TenantSettings]:
        for tenant in tenants:
            if check_tenant(tenant) == OPERATOR:
                raise ValueError(f"the operator, {OPERATOR!r}, has no records")
        return tenants
