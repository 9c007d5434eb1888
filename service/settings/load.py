"""Every setting of the service: one TOML file, ``KVSHELF_`` environment variables, command-line flags, in that order.

A nested setting is ``KVSHELF_POOL__TTL_SECONDS`` in the environment and ``ttl_seconds`` under ``[pool]`` in the file.
Unknown keys are refused. ``docs/configuration.md`` describes each one; a test holds the two together.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import SettingsError as PydanticSettingsError

from service.access.hosts import is_loopback
from service.settings.access import MIN_POOL_BYTES, MIN_STORE_BYTES, AccessSettings
from service.settings.base import as_written
from service.settings.encryption import EncryptionSettings
from service.settings.grpc import GrpcSettings
from service.settings.lease import LeaseSettings
from service.settings.limits import LimitSettings
from service.settings.local import LocalSettings
from service.settings.pool import PoolSettings
from service.settings.scrub import ScrubSettings
from service.settings.server import ServerSettings
from service.settings.store import StoreSettings
from service.settings.tls import TlsSettings
from service.settings.tracing import TracingSettings
from service.units import bytes_text

SHARED_SHELF = ""
"""The shelf of all tenants that have none of their own."""


class SettingsError(ValueError):
    """The settings are unusable; the text names each setting that is wrong and why."""


class Settings(BaseSettings):
    """All settings. Build it with :func:`load_settings`."""

    model_config = SettingsConfigDict(
        env_prefix="KVSHELF_", env_nested_delimiter="__", extra="forbid", frozen=True, env_ignore_empty=True
    )

    server: ServerSettings = Field(default_factory=ServerSettings)
    grpc: GrpcSettings = Field(default_factory=GrpcSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    pool: PoolSettings = Field(default_factory=PoolSettings)
    lease: LeaseSettings = Field(default_factory=LeaseSettings)
    local: LocalSettings = Field(default_factory=LocalSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    access: AccessSettings = Field(default_factory=AccessSettings)
    tls: TlsSettings = Field(default_factory=TlsSettings)
    encryption: EncryptionSettings = Field(default_factory=EncryptionSettings)
    scrub: ScrubSettings = Field(default_factory=ScrubSettings)
    tracing: TracingSettings = Field(default_factory=TracingSettings)

    @model_validator(mode="after")
    def _is_not_open_to_others(self) -> "Settings":
        host = self.server.host
        if self.access.token_file is None and not is_loopback(host):
            raise ValueError(
                f"server.host = {host!r} is no loopback address, so others could reach the service, and no tokens are"
                " configured: set access.token_file (see `kvshelf token new`), or listen on 127.0.0.1, ::1 or localhost"
            )
        return self

    @model_validator(mode="after")
    def _budgets_can_be_kept(self) -> "Settings":
        if self.store.redis_url is not None and len(self.store_budgets()) > 1:
            raise ValueError(
                "store_budget_bytes of tenants are kept on the SSD of this machine only: take them out, or"
                " store.redis_url"
            )
        return self

    @model_validator(mode="after")
    def _budgets_leave_a_shelf_for_all(self) -> "Settings":
        for what, budgets, least in (
            ("store", self.store_budgets(), MIN_STORE_BYTES),
            ("pool", self.pool_budgets(), MIN_POOL_BYTES),
        ):
            if budgets[SHARED_SHELF] < least:
                total = sum(budgets.values())
                own = total - budgets[SHARED_SHELF]
                raise ValueError(
                    f"the tenants' own {what}_budget_bytes come to {bytes_text(own)}, of the {bytes_text(total)} of"
                    f" {what}.budget_bytes: raise it, or lower theirs, so that {bytes_text(least)} are left for others"
                )
        return self

    def store_budgets(self) -> dict[str, int]:
        """Bytes of each SSD shelf: by tenant for those that have their own, and under ``SHARED_SHELF`` what is left."""
        own = {name: tenant.store_budget_bytes for name, tenant in self.access.tenants.items()}
        return _by_shelf(self.store.budget_bytes, own)

    def pool_budgets(self) -> dict[str, int]:
        """As :meth:`store_budgets`, of the DRAM pool."""
        own = {name: tenant.pool_budget_bytes for name, tenant in self.access.tenants.items()}
        return _by_shelf(self.pool.budget_bytes, own)


def _by_shelf(total_bytes: int, own: Mapping[str, int | None]) -> dict[str, int]:
    given = {tenant: budget for tenant, budget in own.items() if budget is not None}
    return {SHARED_SHELF: total_bytes - sum(given.values()), **given}


_CONFIG_VARIABLE = "KVSHELF_CONFIG"
TOKEN_VARIABLE = "KVSHELF_TOKEN"  # noqa: S105 - the name of one
"""What commands that talk to a service send as their token. No setting of a service."""
PROBE_TOKEN_VARIABLE = "KVSHELF_PROBE_TOKEN"  # noqa: S105 - the name of one
"""What ``kvshelf doctor`` sends with its live request."""
_TEST_PREFIX = "KVSHELF_TEST_"
_BOUNDS = {
    "greater_than_equal": "at least",
    "greater_than": "above",
    "less_than_equal": "at most",
    "less_than": "below",
}
"""How a bound is said, by pydantic's name of the error."""


def load_settings(
    path: Path | None = None, flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Merge defaults, the TOML file, the environment and flags; the later ones win, setting by setting.

    Args:
        path: the TOML file; without it ``KVSHELF_CONFIG`` may name one.
        flags: nested settings from the command line, such as ``{"server": {"port": 0}}``.
        environment: the variables to check for unknown names; the process's own by default.

    Raises:
        SettingsError: a file that cannot be read or parsed, an unknown key, or a value out of bounds.
    """
    known_environment = os.environ if environment is None else environment
    chosen = path or (Path(known_environment[_CONFIG_VARIABLE]) if known_environment.get(_CONFIG_VARIABLE) else None)
    document = _read_toml(chosen) if chosen else {}
    _refuse_unknown_variables(known_environment)

    class _Merged(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            """The flags, then the environment, then the file: the first that has a setting wins."""
            return (init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=document))

    try:
        return _Merged(**dict(flags or {}))
    except (ValidationError, PydanticSettingsError) as error:
        raise SettingsError(_explain(error, chosen)) from None


def setting_names() -> list[str]:
    """Every setting as ``group.name``, in the order of the groups."""
    return [
        f"{group}.{name}"
        for group, field in Settings.model_fields.items()
        for name in cast("type[BaseModel]", field.annotation).model_fields
    ]


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the configuration file {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the configuration file {path} is no valid TOML: {error}") from None


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    known = {_variable(name) for name in setting_names()} | {_CONFIG_VARIABLE, TOKEN_VARIABLE, PROBE_TOKEN_VARIABLE}
    known |= {_variable(group) for group in Settings.model_fields}
    for name in environment:
        if name.upper().startswith("KVSHELF_") and not name.startswith(_TEST_PREFIX) and name.upper() not in known:
            near = map(_variable, _nearest(name.upper().removeprefix("KVSHELF_").replace("__", ".").lower()))
            hint = " or ".join(near)
            raise SettingsError(f"the environment variable {name} names no setting{hint and f'; did you mean {hint}?'}")


def _variable(name: str) -> str:
    """The environment variable of a setting or of a group."""
    return "KVSHELF_" + name.replace(".", "__").upper()


def _nearest(name: str) -> list[str]:
    """What somebody may have meant who wrote ``name``: the same word in its own group, or else what looks like it."""
    word = name.rpartition(".")[2]
    same = [known for known in setting_names() if known.partition(".")[2] == word]
    return same or difflib.get_close_matches(name, [*setting_names(), *Settings.model_fields], 1)


def _explain(error: ValidationError | PydanticSettingsError, path: Path | None) -> str:
    if isinstance(error, PydanticSettingsError):
        return str(error)
    where = f" (file {path}, environment and flags together)" if path else ""
    lines = []
    for problem in error.errors(include_input=False, include_url=False):
        name = ".".join(str(part) for part in problem["loc"])
        lines.append(f"{f'{name}: ' if name else ''}{_reason(name, problem)}")
    return f"bad settings{where}: " + "; ".join(lines)


def _reason(name: str, problem: ErrorDetails) -> str:
    """What is wrong with one setting; a bound is said in the units that the setting may be written in."""
    kind = problem["type"]
    if kind == "extra_forbidden":
        hint = " or ".join(_nearest(name))
        return f"unknown setting{hint and f', did you mean {hint}?'}"
    if kind in _BOUNDS:
        (bound,) = problem["ctx"].values()
        return f"must be {_BOUNDS[kind]} {as_written(name.rpartition('.')[2], bound)}"
    return problem["msg"].removeprefix("Value error, ")
